package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/memory"
	"github.com/redlatch/redlatch/internal/node"
)

// observedNode is a node in memory that tells of no change, and counts how often an observer looks at it.
type observedNode struct {
	*memory.Node
	link  *memory.Link
	looks atomic.Int64
	// older, once it is set, answers in the node's place, as a server that comes back with old data.
	older atomic.Pointer[memory.Node]
}

// observedConn is a connection to the node.
type observedConn struct {
	driver.Conn
	node *observedNode
}

func (c observedConn) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "EVAL" && args[2] == "1" { // it reads the key alone
		c.node.looks.Add(1)
	}
	if older := c.node.older.Load(); older != nil {
		return older.Link().Dial().Do(ctx, args...)
	}
	return c.Conn.Do(ctx, args...)
}

// observedNodes are some nodes, a client of them, and what it sees.
type observedNodes struct {
	client  *redlatch.Client
	arbiter *observedNode
	others  []*observedNode
	seen    chan redlatch.Holder
}

// openNodes opens a client until the test is over. The arbiter is that of the key.
func openNodes(t *testing.T, config redlatch.Config, n int, key string) *observedNodes {
	t.Helper()
	nodes := make([]*observedNode, n)
	around := hook.Surroundings{Clock: clock.Awake()}
	for i := range nodes {
		one := &observedNode{Node: memory.New(time.Now)}
		one.link, nodes[i] = one.Link(), one
		around.Nodes = append(around.Nodes, hook.Node{Name: fmt.Sprint("node-", i), Dial: func() driver.Conn { return observedConn{one.link.Dial(), one} }})
	}
	opened, err := hook.Open(config, around)
	if err != nil {
		t.Fatal(err)
	}
	o := &observedNodes{client: opened.(*redlatch.Client)}
	t.Cleanup(func() { _ = o.client.Close() })
	arbiter := redlatch.ObservedNode(o.client, key)
	o.arbiter = nodes[arbiter]
	o.others = slices.Delete(nodes, arbiter, arbiter+1)
	return o
}

// observeNodes observes the lock "name" until the test is over.
func observeNodes(t *testing.T, config redlatch.Config, n int) *observedNodes {
	t.Helper()
	o := openNodes(t, config, n, "name")
	o.seen = make(chan redlatch.Holder, 1000)
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer close(o.seen)
		for holder, err := range o.client.Observe(ctx, "name") {
			if err != nil {
				t.Error(err)
			}
			o.seen <- holder
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	return o
}

// sees expects the next holder to be seen within d.
func (o *observedNodes) sees(t *testing.T, id string, d time.Duration) {
	t.Helper()
	start := time.Now()
	if h := <-o.seen; h.ID != id || time.Since(start) > d {
		t.Errorf("after %v %q is seen, want %q within %v", time.Since(start), h.ID, id, d)
	}
}

// looksIn returns how often the arbiter is looked at in d.
func (o *observedNodes) looksIn(d time.Duration) int64 {
	before := o.arbiter.looks.Load()
	time.Sleep(d)
	return o.arbiter.looks.Load() - before
}

// awaitLook returns after the next look.
func (o *observedNodes) awaitLook() {
	for o.looksIn(time.Millisecond) == 0 {
	}
	synctest.Wait()
}

// What the arbiter alone has may be news: it is looked at again soon, until the others say the same.
func TestObserveLooksSoonAfterTheArbiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observeNodes(t, redlatch.Config{}, 3)
		o.sees(t, "", 0)
		o.arbiter.Set("name", "other", time.Hour)
		o.awaitLook()
		for _, other := range o.others {
			other.Set("name", "other", time.Hour)
		}
		o.sees(t, "other", 20*time.Millisecond)
		o.arbiter.Delete("name", "other", "name")
		o.awaitLook()
		for _, other := range o.others {
			other.Delete("name", "other", "name")
		}
		o.sees(t, "", 20*time.Millisecond)
	})
}

// An observer looks every 1.5 s where all nodes say the same, be it that somebody has the lock or nobody, also after
// the arbiter has said something else for a while; and hardly more often in that while.
func TestObserveRestsBetweenLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observeNodes(t, redlatch.Config{}, 3)
		rests := func(when string, most int64) {
			t.Helper()
			if n := o.looksIn(15 * time.Second); n < 9 || n > most {
				t.Errorf("%s: %d looks in 15 s, at most %d expected", when, n, most)
			}
		}
		o.sees(t, "", 0)
		rests("nobody has it", 11)
		for _, other := range append(o.others, o.arbiter) {
			other.Set("name", "other", time.Hour)
		}
		o.sees(t, "other", 1600*time.Millisecond)
		rests("somebody has it", 11)
		o.arbiter.Set("name", "another", time.Hour)
		o.awaitLook()
		o.arbiter.Set("name", "other", time.Hour)
		o.awaitLook()
		rests("the arbiter says the same again", 11)
		o.arbiter.Set("name", "another", time.Hour)
		o.awaitLook()
		rests("the arbiter alone says that another has it", 20)
	})
}

// A holder who has renewed the lock for longer than MaxTTL is the latest all the same: an earlier one, of a server that
// comes back with old data, is not seen after it.
func TestObserveDoesNotGoBackFromALongHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := redlatch.Config{TTL: 10 * time.Second, MaxTTL: 20 * time.Second}
		o := observeNodes(t, config, 1)
		o.sees(t, "", 0)
		lock, err := o.client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		o.sees(t, hook.LeaseOf(lock).HolderID(), 0)
		time.Sleep(3 * config.MaxTTL)
		older := memory.New(time.Now)
		older.Set("name", "ABCDEFGHIJKLMNOPQRSTUVWXYZ.mwwuymle.earlier", 5*time.Second)
		o.arbiter.older.Store(older)
		o.sees(t, "", 7*time.Second)
		_ = lock.Unlock(t.Context()) // it is lost
	})
}

// Whether another library's holder came earlier is not known: it is seen, whatever the counter says.
func TestObserveSeesAForeignHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observeNodes(t, redlatch.Config{}, 1)
		o.sees(t, "", 0)
		lock, err := o.client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		o.sees(t, hook.LeaseOf(lock).HolderID(), 0)
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.sees(t, "", 0)
		without := memory.New(time.Now)
		without.Set("name", "theirs", time.Hour)
		o.arbiter.older.Store(without)
		o.sees(t, "theirs", 1600*time.Millisecond)
	})
}

// Where the nodes that have answered do not tell who has a slot, the one that is slower is waited for.
func TestObservePermitsAwaitsASlowNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := node.PermitsKey("name")
		o := openNodes(t, redlatch.Config{}, 3, queue)
		slow := o.others[0]
		slow.link.Delay(20 * time.Millisecond)
		for _, on := range []*observedNode{o.arbiter, slow} {
			on.Set(node.SlotKey(queue, 7), "theirs", time.Hour)
		}
		for held, err := range o.client.ObservePermits(t.Context(), "name") {
			if err != nil || len(held) != 1 || held[0].Slot != 7 || held[0].Holder.ID != "theirs" {
				t.Errorf("at first %+v, %v", held, err)
			}
			break
		}
	})
}

// One node of three that answers is no quorum, though it is the arbiter.
func TestObserveWithoutAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := openNodes(t, redlatch.Config{}, 3, "name")
		for _, other := range o.others {
			other.link.Cut(true)
		}
		for name, seq := range map[string]iter.Seq[error]{
			"Observe": errorsOf(o.client.Observe(t.Context(), "name")), "ObservePermits": errorsOf(o.client.ObservePermits(t.Context(), "name")),
		} {
			for err := range seq {
				if !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
		}
	})
}

// Where one node of three is away, the other two may say different things: while a lock is being acquired that is no
// error, as a quorum answers. It is one if they go on, and it does not say how long the lock is kept, which was not asked.
func TestObserveBetweenVotes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observeNodes(t, redlatch.Config{}, 3)
		o.others[0].link.Cut(true)
		o.sees(t, "", time.Second)
		for _, id := range []string{"one", "another"} {
			o.arbiter.Set("name", id, time.Hour)
			o.awaitLook()
			time.Sleep(50 * time.Millisecond)
			o.others[1].Set("name", id, time.Hour)
			o.sees(t, id, 200*time.Millisecond)
		}
		o.others[1].Set("name", "a third", time.Hour)
		start := time.Now()
		for err := range errorsOf(o.client.Observe(t.Context(), "name")) {
			if !errors.Is(err, redlatch.ErrNoQuorum) || strings.Contains(err.Error(), "left") || time.Since(start) > 2*time.Second {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			break
		}
	})
}

// A range that is over leaves nothing in the client.
func TestObserveLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observeNodes(t, redlatch.Config{}, 1)
		o.sees(t, "", 0)
		for range o.client.Observe(t.Context(), "a") {
			break
		}
		for range o.client.ObservePermits(t.Context(), "a") {
			break
		}
		if keys := redlatch.ObservedKeys(o.client); keys != 1 {
			t.Errorf("%d keys are observed, want one", keys)
		}
	})
}

// awaited is a ctx that does not end, and counts who waits for its end.
type awaited struct {
	context.Context
	done chan struct{}
	by   atomic.Int64
}

func (c *awaited) Done() <-chan struct{} { return c.done }
func (c *awaited) AfterFunc(func()) (stop func() bool) {
	c.by.Add(1)
	return func() bool {
		c.by.Add(-1)
		return true
	}
}

// A range that is over leaves nothing in the ctx of its caller, which may go on for long.
func TestObserveLeavesNothingInTheCtx(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := openNodes(t, redlatch.Config{}, 1, "name")
		ctx := &awaited{Context: context.Background(), done: make(chan struct{})}
		for range o.client.Observe(ctx, "name") {
			break
		}
		for range o.client.ObservePermits(ctx, "name") {
			break
		}
		if by := ctx.by.Load(); by > 0 {
			t.Errorf("%d wait for the end of ctx", by)
		}
	})
}
