package zookeeper

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Each lock has a node under the root, and under that, ephemeral,
//
//	held               while somebody holds it, so that nobody else can
//	lease:ID           of the holder ID; its data is the TTL, and each extension raises its version
//	wait:WAITER:NUMBER a place in the wait queue
//
// held and the lease are made and deleted in one transaction. A transaction that makes them anew in
// another session also writes the lock's node, so that its version shows the change: the version of
// the lease begins anew.
const (
	lockPrefix  = "lock:"
	heldName    = "held"
	leasePrefix = "lease:"
	waitPrefix  = "wait:"
)

// markOf is the path of a node that is made and deleted with a root, and names its base: a root that was
// deleted and made anew has another.
func markOf(root string, base uint64) string { return root + "/base:" + strconv.FormatUint(base, 10) }

// place is the path of a lock's node.
type place string

func placeOf(root, key string) place { return place(root + "/" + lockPrefix + url.QueryEscape(key)) }

func (p place) held() string           { return string(p) + "/" + heldName }
func (p place) lease(id string) string { return string(p) + "/" + leasePrefix + url.QueryEscape(id) }
func (p place) wait(w waiter) string   { return string(p) + "/" + w.node }

// newWait returns the path of a new place in the queue; the server adds the number.
func (p place) newWait(name string) string {
	return string(p) + "/" + waitPrefix + url.QueryEscape(name) + ":"
}

// keyOf returns the key of the lock that the node at path belongs to.
func keyOf(root, path string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, root+"/"+lockPrefix)
	if !ok {
		return "", false
	}
	name, _, _ := strings.Cut(rest, "/")
	key, err := url.QueryUnescape(name)
	return key, err == nil
}

// waiter is a place in a wait queue.
type waiter struct {
	name string
	// number is given by the server, one for each node that was made under the lock's. After 2^31 − 1 it gives this number
	// again and, while several requests are under way, the next ones, which are below 0.
	number int32
	node   string
}

// contents are what a lock's node contains.
type contents struct {
	// holder is the holder id, "" where there is none.
	holder string
	// foreign: what is there of held and leases is not what a transaction of this library leaves.
	foreign bool
	// moves is the version of the lock's node.
	moves int32
	// waiters are in their order.
	waiters []waiter
}

func parseContents(children []string) contents {
	var c contents
	held, leases := 0, 0
	for _, node := range children {
		if node == heldName {
			held = 1
			continue
		}
		if id, ok := strings.CutPrefix(node, leasePrefix); ok {
			if id, err := url.QueryUnescape(id); err == nil {
				c.holder = id
				leases++
			}
			continue
		}
		rest, ok := strings.CutPrefix(node, waitPrefix)
		escaped, digits, ok2 := strings.Cut(rest, ":")
		number, err := strconv.ParseInt(digits, 10, 32)
		if !ok || !ok2 || err != nil {
			continue
		}
		if name, err := url.QueryUnescape(escaped); err == nil {
			c.waiters = append(c.waiters, waiter{name: name, number: int32(number), node: node})
		}
	}
	c.foreign = held != leases
	slices.SortFunc(c.waiters, func(a, b waiter) int {
		return cmp.Or(cmp.Compare(a.number-b.number, 0), cmp.Compare(a.node, b.node)) // one order for all clients
	})
	return c
}

// index returns the index of the waiter with that name, or -1.
func (c contents) index(name string) int {
	return slices.IndexFunc(c.waiters, func(w waiter) bool { return w.name == name })
}
