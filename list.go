package redlatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/vote"
)

// Listed is a lock that List has found.
type Listed struct {
	// Name is the lock's; of a permit that of all and its slot, as in pool#3. Permit tells that from a
	// lock of such a name, and Slot is which permit it is.
	Name   string
	Permit bool
	Slot   int
	// Holder has the lock on the most nodes. Left is how long these keep it at least, unless it
	// is extended or released.
	Holder Holder
	Left   time.Duration
	// Nodes is how many nodes Holder has. If they are no quorum, Holder is acquiring the lock, or
	// has lost it.
	Nodes int
	// Foreign: the value of the key is not of this library. It may be another library's
	// lock, or no lock at all.
	Foreign bool
	// Readers are those who have it together where Holder is Shared, in the order of their coming.
	Readers []Reader
	// Waiting are the clients that are in the wait queue for it, in their order; of a permit, for any
	// of that name.
	Waiting []Waiter
}

// Waiter is a client that waits for a lock. Its callers count as one.
type Waiter struct {
	// Label is its Config.Label.
	Label string
	// Shared: it waits as a reader (Client.RLock), each of its callers for itself.
	Shared bool
}

// labelMark is between the random part of a waiter's name and its label.
const labelMark = ":"

// labelOf is the label of a waiter by its name in the queue.
func labelOf(waiter string) string {
	name, _, _ := strings.Cut(waiter, "/")
	_, escaped, _ := strings.Cut(name, labelMark)
	label, err := url.QueryUnescape(escaped)
	if err != nil || !printable.Is(label) {
		return ""
	}
	return label
}

const (
	// pageOfKeys is how many keys a node is asked to look at in one step, which takes it
	// well below a millisecond.
	pageOfKeys = 500
	// maxID bounds a holder id of any kind, in bytes, that is listed.
	maxID = 512
	// longestQueue bounds how many waiters are listed.
	longestQueue = 1000
)

// List returns the locks whose names match the pattern and the permits of such names, sorted by name,
// and one answer for each node: VoteGranted, or an Err that says why the node could not be asked. The pattern
// is that of the command KEYS. Keys that may be locks of another library are listed as
// Foreign: strings of at most 512 bytes that expire. List reads all keys with SCAN in small
// steps, so it takes longer the more keys there are, and delays no other client. A lock that is
// acquired or released meanwhile may be missing. List changes nothing, and uses connections
// of its own.
//
// List waits for ctx, for a second at most for one answer, and when a quorum has answered
// half as long again for the other nodes. The error wraps ErrInvalid, or ErrNoQuorum if too
// few nodes answered to tell who holds what; the locks are then those that these nodes
// have. A Redis Cluster is not listed.
func List(ctx context.Context, config Config, pattern string) ([]Listed, []NodeAnswer, error) {
	return browse(ctx, config, true, func(ctx context.Context, config Config, conn driver.Batcher) (map[listed]found, error) {
		before, after, _ := strings.Cut(config.KeyTemplate, nameMark)
		keys, locks := escapeGlob(before)+pattern+escapeGlob(after), make(map[listed]found)
		err := scan(ctx, conn, keys, func(page []string) error {
			var places []place
			for _, key := range page {
				name, ok := strings.CutPrefix(key, before)
				name, ok2 := strings.CutSuffix(name, after)
				if ok && ok2 && name != "" && !strings.HasPrefix(key, node.KeyPrefix) {
					places = append(places, placeOf(config, name))
				}
			}
			return lookAt(ctx, conn, places, locks)
		})
		if err != nil {
			return locks, err
		}
		return locks, scan(ctx, conn, node.KeyPrefix+"{*}:permit:*:"+keys, func(page []string) error {
			var places []place
			for _, key := range page {
				if p, ok := permitAt(config, pattern, key); ok {
					places = append(places, p)
				}
			}
			return lookAt(ctx, conn, places, locks)
		})
	})
}

// scan calls look with the keys that match, some at a time.
func scan(ctx context.Context, conn driver.Batcher, match string, look func(keys []string) error) error {
	for cursor := "0"; ; {
		reply, err := ask(ctx, conn, []string{"SCAN", cursor, "MATCH", match, "COUNT", strconv.Itoa(pageOfKeys), "TYPE", "string"})
		if err != nil {
			return err
		}
		if len(reply) != 1 || len(reply[0].Array) != 2 {
			return errors.New("the answer to SCAN has another form")
		}
		var keys []string
		for _, key := range reply[0].Array[1].Array {
			keys = append(keys, key.Text)
		}
		if err := look(keys); err != nil {
			return err
		}
		if cursor = reply[0].Array[0].Text; cursor == "0" {
			return nil
		}
	}
}

// Waiters returns the clients that are in the wait queue for the lock name, in their order, also in a
// Cluster. Its errors are those of List. When a quorum has answered it waits a quarter as long again
// for the other nodes, NodeTimeout at most.
func Waiters(ctx context.Context, config Config, name string) ([]Waiter, error) {
	lock, err := lookUp(ctx, config, name)
	return lock.Waiting, err
}

// lookUp returns what there is of the lock name, the zero Listed for nothing.
func lookUp(ctx context.Context, config Config, name string) (Listed, error) {
	all, _, err := browse(ctx, config, false, func(ctx context.Context, config Config, conn driver.Batcher) (map[listed]found, error) {
		locks := make(map[listed]found)
		return locks, lookAt(ctx, conn, []place{placeOf(config, name)}, locks)
	})
	for _, lock := range all {
		return lock, err
	}
	return Listed{}, err
}

// found is what one node has of a lock.
type found struct {
	holder string
	left   time.Duration
	queue  []string
	// readers has what each of those has left who have it together.
	readers map[string]time.Duration
}

// browse has look done to each node and puts together what they found. Where a quorum has
// answered it waits for the others a little, and for longer if it is to be thorough: then look goes
// through all keys, and else asks for those of one name.
func browse(ctx context.Context, config Config, thorough bool, look func(context.Context, Config, driver.Batcher) (map[listed]found, error)) ([]Listed, []NodeAnswer, error) {
	if err := checkContext(ctx); err != nil {
		return nil, nil, err
	}
	config, endpoints, err := config.complete()
	if err != nil {
		return nil, nil, fmt.Errorf("redlatch: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	on := make([]map[listed]found, len(endpoints))
	answers := make([]NodeAnswer, len(endpoints))
	type result struct {
		i     int
		locks map[listed]found
		err   error
	}
	results := make(chan result, len(endpoints)) // room for all: not all are read
	for i, e := range endpoints {
		answers[i].Node, answers[i].Err = e.name, errNotInTime // until it has answered
		go func() {
			conn, err := e.dialToBrowse(thorough)
			if err != nil {
				results <- result{i: i, err: err}
				return
			}
			defer conn.Close()
			locks, err := look(ctx, config, conn)
			results <- result{i, locks, err}
		}()
	}
	start, heard := time.Now(), 0
	var enough <-chan time.Time
	for waiting := len(endpoints); waiting > 0; waiting-- {
		select {
		case r := <-results:
			on[r.i] = r.locks
			answers[r.i].Verdict, answers[r.i].Err = VoteGranted, r.err
			switch _, refused := errors.AsType[*driver.ServerError](r.err); {
			case r.err == nil:
				heard++
			case refused:
				answers[r.i].Verdict = VoteRefused
			case errors.Is(r.err, driver.ErrNotSent):
				answers[r.i].Verdict = VoteNotSent
			default:
				answers[r.i].Verdict = VoteUnknown
			}
			if enough == nil && heard >= quorum.Majority(len(endpoints)) {
				rest := config.aLittle(time.Since(start))
				if thorough {
					rest = time.Since(start)/2 + time.Millisecond
				}
				enough = time.After(rest)
			}
		case <-enough:
			waiting = 0
		}
	}
	listed := together(on)
	if heard < quorum.Majority(len(endpoints)) {
		return listed, answers, newQuorumError("list", "", answers)
	}
	return listed, answers, nil
}

// dialToBrowse connects to the node at e, which lists all its locks or says what there is of one name. A
// Cluster's masters have some locks each.
func (e endpoint) dialToBrowse(all bool) (driver.Batcher, error) {
	switch {
	case e.attached != nil, e.cluster && all:
		return nil, driver.NotSent(errNotListed)
	case e.cluster:
		return redisconn.NewCluster(e.options), nil
	}
	return redisconn.New(e.options)
}

var (
	errNotListed = errors.New("the locks of a Cluster are not listed")
	errNotInTime = errors.New("it did not answer in time")
)

// together is what the nodes have found, a lock once.
func together(on []map[listed]found) []Listed {
	locks := make(map[listed]bool)
	for _, found := range on {
		for one := range found {
			locks[one] = true
		}
	}
	var all []Listed
	order := func(a, b listed) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.slot, b.slot)) }
	for _, one := range slices.SortedFunc(maps.Keys(locks), order) {
		lefts := make(map[string][]time.Duration)
		var queue []string
		for _, locks := range on {
			lock, ok := locks[one]
			if !ok {
				continue
			}
			if lock.holder != "" {
				lefts[lock.holder] = append(lefts[lock.holder], lock.left)
			}
			if len(lock.queue) > len(queue) {
				queue = lock.queue // but for a change of its arbiter, one node has it
			}
		}
		l := Listed{Name: one.name, Permit: one.permit, Slot: one.slot, Readers: readersOf(on, one)}
		if one.permit {
			l.Name += "#" + strconv.Itoa(one.slot)
		}
		if len(lefts) > 0 {
			most := slices.MaxFunc(slices.Sorted(maps.Keys(lefts)), func(a, b string) int { return cmp.Compare(len(lefts[a]), len(lefts[b])) })
			l.Holder, l.Nodes = parseHolder(most), len(lefts[most])
			l.Left = kept(lefts[most], len(on))
			l.Foreign = isForeign(most)
		}
		for _, waiter := range queue {
			l.Waiting = append(l.Waiting, Waiter{labelOf(waiter), strings.HasPrefix(waiter, vote.Reader)})
		}
		all = append(all, l)
	}
	return all
}

// lookAt adds to locks what the node has at each of places that can be a lock.
func lookAt(ctx context.Context, conn driver.Batcher, places []place, locks map[listed]found) error {
	if len(places) == 0 {
		return nil
	}
	const each = 4
	commands := make([][]string, 0, each*len(places)+1)
	for _, p := range places {
		commands = append(commands, []string{"GETRANGE", p.key, "0", strconv.Itoa(maxID)}, []string{"PTTL", p.key},
			[]string{"ZRANGE", p.queue, "0", strconv.Itoa(longestQueue - 1)},
			[]string{"ZRANGE", node.ReadersKey(p.key), "0", strconv.Itoa(longestQueue - 1), "WITHSCORES"})
	}
	commands = append(commands, []string{"TIME"})
	replies, err := ask(ctx, conn, commands...)
	if err != nil {
		return err
	}
	now := readTime(replies[len(replies)-1])
	for i, p := range places {
		value, left, queue := replies[each*i].Text, replies[each*i+1].Int, replies[each*i+2].Array
		lock := found{left: time.Duration(left) * time.Millisecond}
		// One that never expires and is not ours is data.
		if len(value) <= maxID && (left >= 0 || !isForeign(vote.HolderIn(value))) {
			lock.holder = vote.HolderIn(value)
		}
		if lock.holder == vote.SharedMark {
			lock.readers = readersIn(replies[each*i+3].Array, now)
		}
		for _, waiter := range queue {
			lock.queue = append(lock.queue, waiter.Text)
		}
		if lock.holder != "" || len(lock.queue) > 0 {
			locks[p.listed] = lock
		}
	}
	return nil
}

// ask sends commands together. A key of another type is as good as none.
func ask(ctx context.Context, conn driver.Batcher, commands ...[]string) ([]driver.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	replies, errs := conn.Batch(ctx, commands...)
	for _, err := range errs {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, errNotInTime
		}
		if server, ok := errors.AsType[*driver.ServerError](err); err != nil && (!ok || server.Code() != "WRONGTYPE") {
			return nil, err
		}
	}
	return replies, nil
}

// escapeGlob has text mean itself in a pattern.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}
