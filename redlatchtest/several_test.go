package redlatchtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// loseTurns has set lose turns for a and b, until it takes them one by one and has a; other has b then.
func loseTurns(ctx context.Context, t *testing.T, set, other *Client) (b *redlatch.Lock, out <-chan locktest.Outcome) {
	t.Helper()
	b = locktest.TryLock(t, other, "b")
	out = locktest.LockIn(ctx, set, "b", redlatch.WithAlso("a"), redlatch.WithLabel("set"))
	for {
		time.Sleep(10 * time.Millisecond)
		a, err := other.TryLock(t.Context(), "a")
		if err != nil {
			if other.Held()["a"].Label == "set" {
				return b, out
			}
			continue
		}
		locktest.Unlock(t, b)
		if b, err = other.Lock(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, a)
	}
}

// What a call for several names takes one by one is no lock of the program's: it is not counted and not
// observed, and all of them together are one.
func TestSinglesAreNotSeen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		events := new(locktest.Events)
		set := New(t, redlatch.Config{Observer: events})
		other := set.Peer(redlatch.Config{})
		b, out := loseTurns(t.Context(), t, set, other)
		time.Sleep(5 * time.Second)
		if s := set.Stats(); s.Acquired != 0 || s.Held != 0 || s.Tries < 5 || events.Kinds() != "" {
			t.Errorf("with one of the names: %+v, %s", s, events.Kinds())
		}
		locktest.Unlock(t, b)
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		tries := set.Stats().Tries
		if s := set.Stats(); s.Acquired != 1 || s.Held != 1 {
			t.Errorf("with all: %+v", s)
		}
		held := other.Held()
		if held["a"] != held["b"] || held["a"].Label != "set" {
			t.Errorf("held: %v", held)
		}
		if e := locktest.EventsOf[redlatch.LockAcquired](events); len(e) != 1 || uint64(e[0].Tries) != tries || e[0].Name != "b" || e[0].Waited < 5*time.Second {
			t.Errorf("%d tries, and %+v", tries, e)
		}
		locktest.Unlock(t, o.Lock)
		if s := set.Stats(); s.Acquired != 1 || s.Held != 0 || s.Lost != 0 || events.Kinds() != "LockAcquired LockReleased" {
			t.Errorf("at the end: %+v, %s", s, events.Kinds())
		}
		if held := other.Held(); len(held) > 0 {
			t.Errorf("left: %v", held)
		}
	})
}

// One of the names that it has is lost: nobody is told of that, and it begins anew.
func TestSingleIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		events := new(locktest.Events)
		set := New(t, redlatch.Config{Observer: events})
		other := set.Peer(redlatch.Config{})
		b, out := loseTurns(t.Context(), t, set, other)
		set.Cut(true)
		time.Sleep(time.Minute) // its own keys have run out
		a := locktest.TryLock(t, other, "a")
		set.Cut(false)
		locktest.Unlock(t, b)
		time.Sleep(10 * time.Second)
		if held := other.Held(); held["a"].Label == "set" || a.Err() != nil {
			t.Errorf("held beside another: %v, %v", held, a.Err())
		}
		locktest.Unlock(t, a)
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if o.Lock.Token() <= a.Token() {
			t.Errorf("token %d follows %d", o.Lock.Token(), a.Token())
		}
		locktest.Unlock(t, o.Lock)
		if s := set.Stats(); s.Lost != 0 || s.Acquired != 1 {
			t.Errorf("%+v", s)
		}
		for _, e := range events.All() {
			switch e.(type) {
			case redlatch.LockLost, redlatch.LockExtended, redlatch.LockNotExtended:
				t.Errorf("observed: %+v", e)
			}
		}
	})
}

// Who holds one name may wait for one that a call for several has taken: then that call gives its names
// back after a while, though those who nest these locks do so in another order than its own.
func TestSinglesGiveWay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		set := New(t, redlatch.Config{})
		other := set.Peer(redlatch.Config{})
		b, out := loseTurns(t.Context(), t, set, other)
		began := time.Now()
		a, err := other.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 11*time.Second {
			t.Errorf("it gave way after %v", took)
		}
		locktest.Unlock(t, a)
		locktest.Unlock(t, b)
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		locktest.Unlock(t, o.Lock)
	})
}

// The error of a call for several names says of each node that has one of them for another which that is: behind a
// caller of this process or of another, and while the call takes the names one by one.
func TestSeveralSayWhichIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		set := New(t, redlatch.Config{})
		other := set.Peer(redlatch.Config{})
		check := func(what string, out <-chan locktest.Outcome) {
			t.Helper()
			err := (<-out).Err
			if failed, ok := errors.AsType[*redlatch.QuorumError](err); !ok || failed.Name != "b" || failed.Nodes[0].Name != "b" {
				t.Errorf("%s: %v: %+v", what, err, failed)
			}
		}
		within := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		b := locktest.TryLock(t, set, "b")
		check("held in this process", locktest.LockIn(within(), set, "b", redlatch.WithAlso("a")))
		check("held in another", locktest.LockIn(within(), other, "b", redlatch.WithAlso("a")))
		waiting := locktest.LockIn(within(), other, "b")
		time.Sleep(time.Second)
		check("behind one who waits", locktest.LockIn(within(), other, "b", redlatch.WithAlso("c")))
		<-waiting
		locktest.Unlock(t, b)
		time.Sleep(time.Second) // their places in the queue are given up
		ctx, cancel := context.WithCancel(t.Context())
		b, out := loseTurns(ctx, t, set, other)
		time.Sleep(time.Second)
		cancel()
		check("one by one", out)
		locktest.Unlock(t, b)
	})
}

// endsWhenAsked is a ctx that ends just when it is asked for its error.
type endsWhenAsked struct {
	context.Context
	end   context.CancelFunc
	armed atomic.Bool
}

func (c *endsWhenAsked) Err() error {
	if c.armed.Load() {
		c.end()
	}
	return c.Context.Err()
}

// The ctx of a call ends just when the call has waited long enough for the other names, or has lost one: the
// error is that ctx ended and what stood in the way, not what ended the wait for one name.
func TestSinglesEndWithTheCtx(t *testing.T) {
	for what, lost := range map[string]bool{"patience is over": false, "a name is lost": true} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				set := New(t, redlatch.Config{})
				ctx := new(endsWhenAsked)
				ctx.Context, ctx.end = context.WithCancel(t.Context())
				defer ctx.end()
				b, out := loseTurns(ctx, t, set, set.Peer(redlatch.Config{}))
				ctx.armed.Store(true)
				if lost {
					set.Lose("a")
				}
				if err := (<-out).Err; !errors.Is(err, context.Canceled) || !errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrLost) {
					t.Error(err)
				}
				locktest.Unlock(t, b)
			})
		})
	}
}

// Calls for the same names in any order, beside others that lock one name all the time: none waits for
// long, as those that take their names one by one do not wait for each other in a circle.
func TestSinglesInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		names := []string{"a", "b", "c", "d"}
		first := New(t, redlatch.Config{})
		gates := &locktest.Turnstiles{T: t}
		ctx, end := context.WithCancel(t.Context())
		var lockers, sets sync.WaitGroup
		for i := range 6 {
			client, rng := first.Peer(redlatch.Config{}), rand.New(rand.NewPCG(1, uint64(i)))
			client.Delay(time.Millisecond)
			lockers.Go(func() {
				for {
					lock, err := client.Lock(ctx, names[rng.IntN(len(names))])
					if err != nil {
						return
					}
					gates.Pass(lock, "one", func() { time.Sleep(20 * time.Millisecond) })
				}
			})
		}
		var mu sync.Mutex
		var longest time.Duration
		for i := range 3 {
			client, rng := first.Peer(redlatch.Config{}), rand.New(rand.NewPCG(2, uint64(i)))
			client.Delay(time.Millisecond)
			sets.Go(func() {
				for range 40 {
					set := make([]string, 3)
					for k, n := range rng.Perm(len(names))[:len(set)] {
						set[k] = names[n]
					}
					began := time.Now()
					lock, err := client.LockAll(t.Context(), set)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(began))
					mu.Unlock()
					gates.Pass(lock, "all", func() { time.Sleep(20 * time.Millisecond) })
				}
			})
		}
		sets.Wait()
		end()
		lockers.Wait()
		t.Logf("the longest wait was %v", longest)
		if longest > 5*time.Second {
			t.Errorf("a call waited for %v, beside locks of 20 ms", longest)
		}
	})
}
