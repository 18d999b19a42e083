package redlatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/memory"
	"github.com/redlatch/redlatch/internal/script"
)

// pool is the name of the permits.
const pool = "pool"

// trio are three nodes in memory.
type trio [3]*memory.Node

func newTrio() (nodes trio) {
	for i := range nodes {
		nodes[i] = memory.New(time.Now)
	}
	return nodes
}

// set has another client hold a slot on some nodes.
func (nodes trio) set(slot int, on ...int) {
	for _, i := range on {
		nodes[i].Set(locktest.SlotKey(pool, slot), "other", time.Minute)
	}
}

// permitClient is a client of a trio, to whom the first slot that is free is the first one that it sees.
type permitClient struct {
	*redlatch.Client

	// order are the nodes in the order in which they are asked for a permit, and links the ways to them.
	order []int
	links [3]*memory.Link
}

// virtual is a clock whose time is that of a synctest bubble.
type virtual struct {
	clock.Clock
	start time.Time
}

func (v virtual) Now() clock.Instant {
	return clock.Instant{Mono: time.Now(), Boot: time.Since(v.start)}
}

// lateRelease is a connection on which releases of permits are sent late by so much.
type lateRelease struct {
	driver.Conn
	late time.Duration
}

func (c lateRelease) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if sha == script.ReleasingSlot.SHA {
		time.Sleep(c.late)
	}
	return c.Conn.EvalSHA(ctx, sha, keys, args)
}

// turnless is a connection on which a choice for one who waits is not sent the first time. turns counts them.
type turnless struct {
	driver.Conn
	turns *atomic.Int32
}

func (c turnless) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if args[0] == script.Slot && args[7] != "" && c.turns.Add(1) == 1 {
		return driver.Reply{}, driver.NotSent(errors.New("lost"))
	}
	return c.Conn.EvalSHA(ctx, sha, keys, args)
}

// open opens a client of the nodes, which sends releases of permits late by so much.
func (nodes trio) open(t *testing.T, late time.Duration) *permitClient {
	t.Helper()
	return nodes.openBy(t, func(conn driver.Conn) driver.Conn {
		if late > 0 {
			return lateRelease{conn, late}
		}
		return conn
	})
}

// openBy opens a client of the nodes whose connections are those that by makes of them.
func (nodes trio) openBy(t *testing.T, by func(driver.Conn) driver.Conn) *permitClient {
	t.Helper()
	c := &permitClient{}
	around := hook.Surroundings{Clock: virtual{clock.System, time.Now()}, Draw: func(time.Duration) time.Duration { return 0 }}
	for i, n := range nodes {
		c.links[i] = n.Link()
		around.Nodes = append(around.Nodes, hook.Node{Name: string(rune('a' + i)), Dial: func() driver.Conn { return by(c.links[i].Dial()) }})
	}
	c.Client = locktest.OpenIn(t, redlatch.Config{TTL: 3 * time.Second}, around)
	c.order = redlatch.PermitNodes(c.Client, pool)
	lock, err := c.TryLock(t.Context(), "another") // so that all nodes are admitted
	if err == nil {
		err = lock.Unlock(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

// at is the link to the node that is asked for a permit as the i-th.
func (c *permitClient) at(i int) *memory.Link { return c.links[c.order[i]] }

// try makes one try for one of k permits.
func (c *permitClient) try(ctx context.Context, k int) (*redlatch.Lock, error) {
	return c.TryLock(ctx, pool, redlatch.WithPermits(k))
}

// wait has the client wait for one of k permits, and returns what comes of it.
func (c *permitClient) wait(t *testing.T, k int) <-chan error {
	got := make(chan error, 1)
	go func() {
		_, err := c.Acquire(t.Context(), pool, k)
		got <- err
	}()
	time.Sleep(time.Millisecond)
	return got
}

// A permit that is free on the node that chooses, and that another has on the others, is not waited for: one try goes
// on to the next ones.
func TestPermitThatOthersHaveElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		c := nodes.open(t, 0)
		nodes.set(0, c.order[1:]...)
		nodes.set(1, c.order[1:]...)
		before := c.Stats().Tries
		lock, err := c.try(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		if tries := c.Stats().Tries - before; lock.Slot() != 2 || tries != 1 {
			t.Errorf("slot %d after %d tries", lock.Slot(), tries)
		}
	})
}

// What a failed try for a permit says is who has it, and not the call's own attempt, which is being undone.
func TestPermitIsNotHeldByTheTryForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		c := nodes.open(t, 2*time.Millisecond) // it rests for longer before it tries again
		nodes.set(0, c.order[1])
		c.at(2).Cut(true)
		_, err := c.try(t.Context(), 1)
		for _, a := range locktest.FailureOf(t, err).Nodes {
			if a.Verdict == redlatch.VoteHeld && a.Holder.ID != "other" {
				t.Errorf("%v", a)
			}
		}
		if !errors.Is(err, redlatch.ErrHeld) {
			t.Error(err)
		}
	})
}

// A permit that was released for the first in the queue is not for a call that comes meanwhile, though only one node
// knows of the queue.
func TestPermitIsKeptForTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		holder, waiter := nodes.open(t, 0), nodes.open(t, 0)
		lock, err := holder.try(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got := waiter.wait(t, 1)
		for i := range waiter.links {
			waiter.links[i].Delay(30 * time.Millisecond)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := holder.try(t.Context(), 1); !errors.Is(err, redlatch.ErrHeld) {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// The queue is on another node than the one that keeps it usually, which was away and has forgotten who has which
// permit: the first in the queue gets the one that is free in one try.
func TestPermitByTheNodeThatKeepsTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		holder, waiter := nodes.open(t, 0), nodes.open(t, 0)
		const k = 3
		holder.at(0).Cut(true)
		waiter.at(0).Cut(true)
		var held [k]*redlatch.Lock
		for i := range held {
			var err error
			if held[i], err = holder.try(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
		before := waiter.Stats().Tries
		got := waiter.wait(t, k)
		holder.at(0).Cut(false)
		waiter.at(0).Cut(false)
		if err := held[k-1].Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if tries := waiter.Stats().Tries - before; tries != 2 { // at first, and in its turn
			t.Errorf("%d tries", tries)
		}
	})
}

// The node that chooses grants a slot, and its answer comes too late. What it granted is taken back, and the permit
// that the same call then gets by the choice of another node is not.
func TestPermitAfterALateChoice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		c := nodes.open(t, 0)
		c.at(2).Cut(true) // so that the permit rests on the first two
		c.at(0).Delay(time.Second)
		time.AfterFunc(time.Millisecond, func() { c.at(0).Delay(0) })
		lock, err := c.try(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		for i := range 2 {
			if held := nodes[c.order[0]].Keys()[locktest.SlotKey(pool, i)].Holder != ""; held != (i == lock.Slot()) {
				t.Errorf("slot %d is held by the first node: %v, and the permit is of slot %d", i, held, lock.Slot())
			}
		}
	})
}

// A try for a permit that ctx cuts short says what stood in the way so far.
func TestPermitTryThatIsCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		c := nodes.open(t, 0)
		nodes.set(0, c.order[1])
		c.at(2).Delay(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := c.try(ctx, 1); !errors.Is(err, redlatch.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// Only the node that keeps the place of the first in the queue is told of it. Where that node cannot choose, the next one does,
// as for a call without a place.
func TestPermitByAnotherNodeThanTheQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		var turns atomic.Int32
		holder := nodes.open(t, 0)
		waiter := nodes.openBy(t, func(conn driver.Conn) driver.Conn { return turnless{conn, &turns} })
		lock, err := holder.try(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got := waiter.wait(t, 1)
		before := waiter.Stats().Tries
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if tries := waiter.Stats().Tries - before; tries != 1 || turns.Load() != 1 {
			t.Errorf("it has a permit after %d tries, for which %d nodes were told of its place", tries, turns.Load())
		}
	})
}
