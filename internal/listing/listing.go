// Package listing reads which locks there are, who holds them and who waits for them, from the keys on a
// node. It changes nothing and is no vote: what it finds may be over when it is read.
package listing

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Locks says how the locks of a client look on its nodes.
type Locks struct {
	// Before and After surround a lock's name in its key.
	Before, After string
	// Foreign reports whether a holder id is of another library.
	Foreign func(holder string) bool
}

// ID tells a lock or a permit from others.
type ID struct {
	Name   string
	Permit bool
	Slot   int
}

// at is where id comes among those of its name: a lock comes before the permits.
func (id ID) at() int {
	if !id.Permit {
		return -1
	}
	return id.Slot
}

// Found is what one node has of a lock.
type Found struct {
	// Holder is a holder id, "" for none, and Left how long the node keeps its key.
	Holder string
	Left   time.Duration
	// Queue has the waiters in their order.
	Queue []string
	// Readers has what is left to each of the readers who hold the lock together.
	Readers map[string]time.Duration
}

// Lock is what several nodes have of a lock.
type Lock struct {
	ID
	// Holder is the holder id that most nodes have, Nodes how many these are.
	Holder string
	Nodes  int
	// Left is how long a quorum keeps the key, or as many nodes as have it.
	Left    time.Duration
	Queue   []string
	Readers []Reader
}

// Reader is one of the readers who hold a lock together; Left and Nodes are as in Lock.
type Reader struct {
	Holder string
	Left   time.Duration
	Nodes  int
}

// key is the key of the lock name.
func (l Locks) key(name string) string { return l.Before + name + l.After }

// name is the name of the lock that has the key.
func (l Locks) name(key string) (name string, ok bool) {
	name, ok = strings.CutPrefix(key, l.Before)
	name, ok2 := strings.CutSuffix(name, l.After)
	return name, ok && ok2
}

// Names returns the names of the locks with these keys that match the pattern.
func (l Locks) Names(keys []string, pattern string) (names []string) {
	for _, key := range keys {
		if name, ok := l.name(key); ok && matches(pattern, name) {
			names = append(names, name)
		}
	}
	return names
}

// Check returns an error where the pattern is malformed.
func Check(pattern string) error {
	_, err := path.Match(bytewise(pattern), "")
	return err
}

// matches reports whether a name matches a pattern of the command KEYS.
func matches(pattern, name string) bool {
	match, _ := path.Match(bytewise(pattern), bytewise(name))
	return match
}

// bytewise has path.Match treat each byte as a character, and a slash like any other, as KEYS does.
func bytewise(text string) string {
	characters := make([]rune, len(text))
	for i := range len(text) {
		if characters[i] = rune(text[i]); text[i] == '/' {
			characters[i] = 0x100 // no byte has it
		}
	}
	return string(characters)
}

// Merge returns what the nodes have found, each lock once, sorted by name. A node that was not heard has nil.
func Merge(on []map[ID]Found) []Lock {
	ids := make(map[ID]bool)
	for _, found := range on {
		for id := range found {
			ids[id] = true
		}
	}
	order := func(a, b ID) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.at(), b.at())) }
	all := make([]Lock, 0, len(ids))
	for _, id := range slices.SortedFunc(maps.Keys(ids), order) {
		all = append(all, merge(on, id))
	}
	return all
}

// merge returns what the nodes have of one lock.
func merge(on []map[ID]Found, id ID) Lock {
	lock := Lock{ID: id}
	holders, readers := make(map[string][]time.Duration), make(map[string][]time.Duration)
	var queues [][]string
	for _, found := range on {
		one, ok := found[id]
		if !ok {
			continue
		}
		if one.Holder != "" {
			holders[one.Holder] = append(holders[one.Holder], one.Left)
		}
		queues = append(queues, one.Queue)
		for reader, left := range one.Readers {
			readers[reader] = append(readers[reader], left)
		}
	}
	lock.Queue = joined(queues)
	if len(holders) > 0 {
		fewer := func(a, b string) int { return cmp.Compare(len(holders[a]), len(holders[b])) }
		lock.Holder = slices.MaxFunc(slices.Sorted(maps.Keys(holders)), fewer)
		lock.Nodes, lock.Left = len(holders[lock.Holder]), Kept(holders[lock.Holder], quorum.Majority(len(on)))
	}
	for reader, left := range readers {
		lock.Readers = append(lock.Readers, Reader{reader, Kept(left, quorum.Majority(len(on))), len(left)})
	}
	return lock
}

// joined puts the queues of several nodes one behind the other, the longest first. One node has them all, unless
// the arbiter has just changed, or clients cannot reach the same node. Who moves from one to another is named once.
func joined(queues [][]string) (all []string) {
	slices.SortStableFunc(queues, func(a, b []string) int { return cmp.Compare(len(b), len(a)) })
	there := make(map[string]bool)
	for _, waiter := range slices.Concat(queues...) {
		if name := vote.Waiter(waiter); !there[name] {
			there[name] = true
			all = append(all, waiter)
		}
	}
	return all
}

// Kept is how long need nodes keep what some of them have left, or all of these if they are fewer.
// Less than 0 is for ever. It sorts left, which is not empty.
func Kept(left []time.Duration, need int) time.Duration {
	slices.SortFunc(left, func(a, b time.Duration) int { return cmp.Compare(uint64(a), uint64(b)) })
	return left[len(left)-max(1, min(len(left), need))]
}
