package redlatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/listing"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/vote"
)

// Listed is a lock that List has found.
type Listed struct {
	// Name is the lock's. For a permit it is the name of all permits and the slot, as in pool#3;
	// Permit tells it from a lock of such a name, and Slot is the number of the permit.
	Name   string
	Permit bool
	Slot   int
	// Holder has the lock on the most nodes. Left is how long a quorum of nodes keeps it at least, or
	// these nodes if they are none, unless it is extended or released; negative is for ever.
	Holder Holder
	Left   time.Duration
	// Nodes is how many nodes Holder has, of those that answered. If they are no quorum, Holder has
	// others that did not answer, or whose user may not read the lock's key; is acquiring the lock; or
	// has lost it.
	Nodes int
	// Foreign: the value of the key was not written by this library. It may be another library's
	// lock, or no lock at all.
	Foreign bool
	// Readers are the readers that have the lock together if Holder is Shared, in the order in
	// which they came. There are 1000 at most of each node, those whose locks end last.
	Readers []Reader
	// Waiting are the clients in the wait queue for the lock, in their order. Where some cannot reach
	// the node that keeps it and wait on another, those on the node with the most come first. There
	// are 1000 at most of each node. For a permit they are those that wait for any permit of that name.
	Waiting []Waiter
}

// Reader is one of the readers that have a lock together (Client.RLock).
type Reader struct {
	Holder Holder
	// Left is how long Nodes nodes keep the reader's lock, at least, unless it is extended or
	// released. If they are no quorum, the reader has others that did not answer, or whose user may not
	// read the lock's key; is acquiring the lock; or has lost it.
	Left  time.Duration
	Nodes int
}

// Waiter is a client that waits for a lock. All its callers count as one.
type Waiter struct {
	// Label is the Config.Label of the client.
	Label string
	// Shared: it waits as a reader (Client.RLock). Each caller that waits as a reader is a Waiter
	// of its own.
	Shared bool
}

// labelMark separates the random part of a waiter's name from its label.
const labelMark = ":"

// labelOf returns the label of a waiter from its name in the queue.
func labelOf(waiter string) string {
	name, _, _ := strings.Cut(waiter, "/")
	_, escaped, _ := strings.Cut(name, labelMark)
	label, err := url.QueryUnescape(escaped)
	if err != nil || !printable.Is(label) {
		return ""
	}
	return label
}

// List returns the locks whose names match the pattern and the permits of such names, sorted by
// name, and one answer for each node: VoteGranted, or an Err that says why the node could not be
// asked, such as that it is a replica, whose keys are those of its master. VoteGranted with an Err
// means that the user of the node's URL may not read some keys: another program's, or locks. They
// are left out. The pattern is that of the command KEYS, but a malformed one is refused. Keys that
// may be locks of another library are listed as Foreign: strings of 1 to 512 bytes that expire.
// List reads all keys with SCAN in small steps, so it takes longer the more keys there are, and
// delays no other client. A lock that is acquired or released meanwhile may be missing. List
// changes nothing, and uses connections of its own.
//
// List waits until ctx is done, for a second at most for one answer; when a quorum has answered, it
// waits half as long again for the other nodes, NodeTimeout at least. The error wraps ErrInvalid; or
// ErrNoQuorum if too few nodes answered to tell who holds what, or ErrRefused if so many refused:
// the locks are then those that the nodes that answered have. A Redis Cluster is not listed: it counts
// as a node that refused.
func List(ctx context.Context, config Config, pattern string) ([]Listed, []NodeAnswer, error) {
	if err := checkPattern(pattern); err != nil {
		return nil, nil, err
	}
	return browse(ctx, config, nil, func(ctx context.Context, locks listing.Locks, conn driver.Batcher) (map[listing.ID]listing.Found, error) {
		return locks.All(ctx, conn, pattern)
	})
}

// Waiters returns the clients in the wait queue for the lock name, as Listed.Waiting, also in a
// Cluster. Its errors are those of List, and ErrInvalid for a name that no lock can have. When a
// quorum has answered, it waits a quarter as long again for the other nodes, NodeTimeout at most.
func Waiters(ctx context.Context, config Config, name string) ([]Waiter, error) {
	lock, err := lookUp(ctx, config, name)
	return lock.Waiting, err
}

// Readers returns the readers that have the lock name, as Listed.Readers, also in a Cluster. It
// waits as Waiters does, and its errors are the same.
func Readers(ctx context.Context, config Config, name string) ([]Reader, error) {
	lock, err := lookUp(ctx, config, name)
	return lock.Readers, err
}

// Permits returns the permits of name that are held, in the order of their slots, and one answer
// for each node, as List does for all names, also in a Cluster. It asks for the keys of all 256
// possible slots in one round, and waits as Waiters does. Its errors are the same.
func Permits(ctx context.Context, config Config, name string) ([]Listed, []NodeAnswer, error) {
	return browse(ctx, config, &name, func(ctx context.Context, locks listing.Locks, conn driver.Batcher) (map[listing.ID]listing.Found, error) {
		return locks.Permits(ctx, conn, name)
	})
}

// List is the function [List] for the client's nodes. Close ends it, and the error is then ErrClosed.
// For a client of package goredis or redlatchtest, whose nodes have no URLs, the error wraps
// ErrInvalid. List is the only way to list the locks in ZooKeeper and etcd. There it asks for each
// lock. Left is then the whole TTL of the holder, which runs from its last extension: only the holder
// knows when that was. Nothing is Foreign there.
func (c *Client) List(ctx context.Context, pattern string) (locks []Listed, nodes []NodeAnswer, err error) {
	err = c.untilClose(ctx, "list", func(ctx context.Context) (err error) {
		locks, nodes, err = c.list(ctx, pattern)
		return err
	})
	return locks, nodes, err
}

func (c *Client) list(ctx context.Context, pattern string) ([]Listed, []NodeAnswer, error) {
	s, is := c.store()
	if !is {
		return List(ctx, c.config, pattern)
	}
	if err := checkPattern(pattern); err != nil {
		return nil, nil, err
	}
	return c.look(ctx, s, "", func(ctx context.Context) ([]string, vote.Answer) {
		keys, a := s.Keys(ctx)
		return c.config.locks().Names(keys, pattern), a
	})
}

// Waiters is the function [Waiters] for the client's nodes. If these have no URLs, or the client is
// closed, the error is that of Client.List.
func (c *Client) Waiters(ctx context.Context, name string) (waiting []Waiter, err error) {
	err = c.untilClose(ctx, fmt.Sprintf("list %q", name), func(ctx context.Context) (err error) {
		waiting, err = c.waiters(ctx, name)
		return err
	})
	return waiting, err
}

func (c *Client) waiters(ctx context.Context, name string) ([]Waiter, error) {
	s, is := c.store()
	if !is {
		return Waiters(ctx, c.config, name)
	}
	if _, err := c.config.key(name); err != nil {
		return nil, err
	}
	listed, _, err := c.look(ctx, s, name, func(context.Context) ([]string, vote.Answer) {
		return []string{name}, vote.Answer{Verdict: vote.Granted}
	})
	for _, lock := range listed {
		return lock.Waiting, err
	}
	return nil, err
}

// Permits is the function [Permits] for the client's nodes. If these have no URLs, or the client is
// closed, the error is that of Client.List. ZooKeeper and etcd have no permits: the error wraps
// ErrInvalid, too.
func (c *Client) Permits(ctx context.Context, name string) (permits []Listed, nodes []NodeAnswer, err error) {
	if _, is := c.store(); is {
		return nil, nil, errNoPermits
	}
	err = c.untilClose(ctx, fmt.Sprintf("list %q", name), func(ctx context.Context) (err error) {
		permits, nodes, err = Permits(ctx, c.config, name)
		return err
	})
	return permits, nodes, err
}

func checkPattern(pattern string) error {
	if err := listing.Check(pattern); err != nil {
		return invalid("the pattern %q: %w: close its brackets", pattern, err)
	}
	return nil
}

// locks returns what tells the keys of locks from other keys on the nodes.
func (c Config) locks() listing.Locks {
	before, after, _ := strings.Cut(c.KeyTemplate, nameMark)
	return listing.Locks{Before: before, After: after, Foreign: isForeign}
}

// lookUp returns what the nodes have of the lock name, the zero Listed for nothing.
func lookUp(ctx context.Context, config Config, name string) (Listed, error) {
	all, _, err := browse(ctx, config, &name, func(ctx context.Context, locks listing.Locks, conn driver.Batcher) (map[listing.ID]listing.Found, error) {
		return locks.One(ctx, conn, name)
	})
	for _, lock := range all {
		return lock, err
	}
	return Listed{}, err
}

// lateAnswers is how long a listing whose ctx is done waits for what the nodes say of that.
const lateAnswers = 20 * time.Millisecond

// browse calls look for each node and puts together what the nodes have of one name, or of all where
// name is nil. When a quorum has answered it waits a little for the others, or for longer where look
// goes through all keys.
func browse(ctx context.Context, config Config, name *string, look func(context.Context, listing.Locks, driver.Batcher) (map[listing.ID]listing.Found, error)) ([]Listed, []NodeAnswer, error) {
	if err := checkContext(ctx); err != nil {
		return nil, nil, err
	}
	config, endpoints, err := config.complete()
	if err != nil {
		return nil, nil, fmt.Errorf("redlatch: %w", err)
	}
	if len(config.attached) > 0 {
		return nil, nil, errNoURLs
	}
	thorough, of := name == nil, ""
	if !thorough {
		of = *name
		if _, err := config.key(of); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	on := make([]map[listing.ID]listing.Found, len(endpoints))
	answers := make([]NodeAnswer, len(endpoints))
	type result struct {
		i     int
		locks map[listing.ID]listing.Found
		err   error
	}
	results := make(chan result, len(endpoints)) // room for all: not all are read
	for i, e := range endpoints {
		answers[i].Node, answers[i].Err = e.name, listing.ErrNotInTime // until it has answered
		go func() {
			conn, err := e.dialToBrowse(ctx, config.Deployment, thorough)
			if err != nil {
				results <- result{i: i, err: err}
				return
			}
			defer conn.Close()
			locks, err := look(ctx, config.locks(), conn)
			results <- result{i, locks, err}
		}()
	}
	start, heard := time.Now(), 0
	done, enough := ctx.Done(), (<-chan time.Time)(nil)
	for waiting := len(endpoints); waiting > 0; waiting-- {
		select {
		case r := <-results:
			on[r.i] = r.locks
			answers[r.i].Verdict, answers[r.i].Err = VoteGranted, r.err
			_, refused := errors.AsType[*driver.ServerError](r.err)
			_, leftOut := errors.AsType[*listing.LeftOutError](r.err)
			switch {
			case r.err == nil, leftOut:
				heard++
			case node.Unfit(r.err), r.err == errNotListed:
				answers[r.i].Verdict = VoteRefused
			case refused:
				answers[r.i].Verdict = VoteUnavailable
			case errors.Is(r.err, driver.ErrNotSent):
				answers[r.i].Verdict = VoteNotSent
			default:
				answers[r.i].Verdict = VoteUnknown
			}
			if enough == nil && heard >= quorum.Majority(len(endpoints)) {
				rest := config.aLittle(time.Since(start))
				if thorough {
					rest = max(time.Since(start)/2, config.NodeTimeout)
				}
				enough = time.After(rest)
			}
		case <-done: // those that have a connection end with ctx; one that is connecting may take a second more
			waiting++
			done, enough = nil, time.After(lateAnswers)
		case <-enough:
			waiting = 0
		}
	}
	listed := merged(on)
	if heard < quorum.Majority(len(endpoints)) {
		return listed, answers, newQuorumError("list", of, answers)
	}
	return listed, answers, nil
}

// dialToBrowse connects to the node at e, to list all its locks or to look up one name. The locks
// of a Cluster cannot all be listed, as each of its masters has some of them. A replica is refused, and
// what is no server by itself or has a later version's deployment. Why there is no connection is known
// before the first answer is due.
func (e endpoint) dialToBrowse(ctx context.Context, deployment string, all bool) (driver.Batcher, error) {
	e.options.ConnectTimeout = listing.AnswerTime
	switch {
	case e.cluster && all:
		return nil, errNotListed
	case e.cluster:
		return redisconn.NewCluster(e.options), nil
	}
	conn, err := redisconn.New(e.options)
	if err != nil {
		return nil, err
	}
	if err = listing.CheckServer(ctx, conn); err == nil {
		err = listing.CheckRecord(ctx, conn, deployment)
	}
	if err != nil {
		conn.Cut() // Close would wait for the answer of a node that hangs
		conn.Close()
		return nil, err
	}
	return conn, nil
}

var (
	errNotListed = errors.New("the locks of a Cluster are not listed")
	errNoURLs    = invalid("this client's nodes have no URLs, by which what is on them is listed: use the function of package redlatch, with a Config that has the URLs")
)

// merged puts together what the nodes have found, each lock once.
func merged(on []map[listing.ID]listing.Found) (all []Listed) {
	for _, lock := range listing.Merge(on) {
		one := Listed{Name: lock.Name, Permit: lock.Permit, Slot: lock.Slot, Nodes: lock.Nodes, Left: lock.Left}
		if lock.Permit {
			one.Name += "#" + strconv.Itoa(lock.Slot)
		}
		if lock.Holder != "" {
			one.Holder, one.Foreign = parseHolder(lock.Holder), isForeign(lock.Holder)
		}
		for _, r := range lock.Readers {
			one.Readers = append(one.Readers, Reader{parseHolder(r.Holder), r.Left, r.Nodes})
		}
		slices.SortFunc(one.Readers, func(a, b Reader) int {
			return cmp.Or(a.Holder.Since.Compare(b.Holder.Since), strings.Compare(a.Holder.ID, b.Holder.ID))
		})
		for _, waiter := range lock.Queue {
			one.Waiting = append(one.Waiting, Waiter{labelOf(waiter), strings.HasPrefix(waiter, vote.Reader)})
		}
		all = append(all, one)
	}
	return all
}

// lookups is how many locks are asked for at the same time in a store.
const lookups = 16

// look asks a store what it has of the locks that choose returns: of one name, or of all where of is "".
func (c *Client) look(ctx context.Context, s store, of string, choose func(context.Context) ([]string, vote.Answer)) ([]Listed, []NodeAnswer, error) {
	if err := c.usable(); err != nil {
		return nil, nil, err
	}
	step := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, c.config.NodeTimeout) }
	chosen, cancel := step()
	names, answer := choose(chosen)
	cancel()
	locks := make(map[listing.ID]listing.Found)
	var mu sync.Mutex // guards locks and answer
	var looks sync.WaitGroup
	room := make(chan struct{}, lookups)
	for _, name := range names {
		key, err := c.config.key(name)
		if err != nil {
			continue // of another template
		}
		room <- struct{}{}
		mu.Lock()
		failed := answer.Verdict != vote.Granted
		mu.Unlock()
		if failed {
			break
		}
		looks.Go(func() {
			defer func() { <-room }()
			ctx, cancel := step()
			defer cancel()
			holder, waiting := s.Look(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case holder.Verdict != vote.Held && holder.Verdict != vote.NotOurs:
				answer = holder
			case holder.Holder != "" || len(waiting) > 0:
				locks[listing.ID{Name: name}] = listing.Found{Holder: holder.Holder, Left: holder.Left, Queue: waiting}
			}
		})
	}
	looks.Wait()
	all, answers := merged([]map[listing.ID]listing.Found{locks}), c.answers([]vote.Answer{answer})
	if answer.Verdict != vote.Granted {
		return all, answers, newQuorumError("list", of, answers)
	}
	return all, answers, nil
}
