package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// slotValues is what the server has at the first slots of name's permits.
func slotValues(t *testing.T, s *redistest.Server, name string, slots int) (values []string) {
	t.Helper()
	for i := range slots {
		values = append(values, locktest.Value(t, s, locktest.SlotKey(name, i)))
	}
	return values
}

func awaitNoPermits(t *testing.T, nodes []*redistest.Server, name string, slots int) {
	t.Helper()
	for _, s := range nodes {
		for i := range slots {
			locktest.AwaitValue(t, s, locktest.SlotKey(name, i), "")
		}
	}
}

// Of k + 1 clients never more than k have a permit at once, and the tokens of each slot grow, while
// one of five nodes is down and another has restarted without what it had, be it the one that chooses
// the slots or not.
func TestPermitsAreNeverExceeded(t *testing.T) {
	t.Parallel()
	const k, names = 2, 4
	nodes := redistest.Nodes(t, 5)
	c := locktest.Config(redistest.URLs(nodes)...)
	c.NoQuarantine = false
	admin := locktest.Open(t, c)
	for i := range nodes {
		if err := admin.Admit(t.Context(), fmt.Sprintf("n%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	var over atomic.Bool
	var passed [3]atomic.Int64 // before, between and after the faults
	var phase atomic.Int64
	var all sync.WaitGroup
	from := seed.Of(t)
	for n := range names {
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		var gates [k]locktest.Turnstile
		var inside atomic.Int64
		for i := range gates {
			gates[i].T = t
		}
		for i := range k + 1 {
			client, rng := locktest.Open(t, c), rand.New(rand.NewPCG(from, uint64(n*names+i)))
			all.Go(func() {
				for !over.Load() {
					lock, err := client.Acquire(locktest.Within(t, locktest.Patience), name, k)
					if err != nil {
						t.Error(err)
						return
					}
					gates[lock.Slot()].Enter(lock, fmt.Sprint(i))
					if now := inside.Add(1); now > k && lock.Err() == nil {
						t.Errorf("%d of %d permits are held", now, k)
					}
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
					inside.Add(-1)
					gates[lock.Slot()].Leave(lock)
					// Who had it of three nodes alone may lose it with one of them.
					if err := lock.Unlock(t.Context()); errors.Is(err, redlatch.ErrLost) && phase.Load() < 2 {
						t.Error(err)
					}
					passed[phase.Load()].Add(1)
				}
			})
		}
	}
	await := func() {
		locktest.Await(t, "permits are held", func() bool { return passed[phase.Load()].Load() > 40 || t.Failed() })
		if phase.Load() < 2 {
			phase.Add(1)
		}
	}
	await()
	nodes[4].Kill()
	await()
	if err := nodes[0].RestartEmpty(t.Context()); err != nil {
		t.Error(err)
	}
	await()
	over.Store(true)
	all.Wait()
	for n := range names {
		awaitNoPermits(t, nodes[:4], fmt.Sprintf("%s/%d", t.Name(), n), k)
	}
}

// The step by which a slot is chosen is executed a second time: it is answered as at first, and the
// attempt has one slot. After the end of the attempt it is a new one, which only the TTL ends.
func TestSlotStepExecutedTwice(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 1)
		proxies := redistest.Proxies(t, nodes)
		steps := make(chan []string, 8)
		proxies[0].OnCommand(func(c redistest.Command) redistest.Action {
			if step, _ := locktest.StepOf(c); step == "slot" {
				steps <- c.Args
			}
			return redistest.Pass
		})
		client, name := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...)), t.Name()
		for range 3 {
			lock := locktest.TryLock(t, client, name, redlatch.WithPermits(3))
			again := <-steps
			for len(steps) > 0 {
				again = <-steps // a busy machine's first try
			}
			for range 2 {
				answer := locktest.Do(t, nodes[0], again...)
				if want := []any{int64(lock.Token()), int64(lock.Slot()), int64(0)}; !reflect.DeepEqual(answer, want) {
					t.Errorf("again it answers %v, want %v", answer, want)
				}
			}
			if values := slotValues(t, nodes[0], name, 3); len(strings.Join(values, "")) != len(values[lock.Slot()]) {
				t.Errorf("it has %q", values)
			}
			locktest.Unlock(t, lock)
		}
		awaitNoPermits(t, nodes, name, 3)
		lock := locktest.TryLock(t, client, name, redlatch.WithPermits(3))
		again := <-steps
		for len(steps) > 0 {
			again = <-steps
		}
		locktest.Do(t, nodes[0], "DEL", "redlatch:{"+name+"}:token:"+locktest.SlotKey(name, lock.Slot()))
		if answer, err := nodes[0].Do(again...); err == nil {
			t.Errorf("again, without its counter: %v", answer)
		}
		locktest.Unlock(t, lock)
	})
}

// The replies of the nodes that choose the slot are lost: what they have given away is taken back,
// whichever slot it was. So it is with the reply to the release.
func TestRepliesOfPermitsAreLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for kind, how := range locktest.Losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, kind), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, n)
				c, name := locktest.Config(redistest.URLs(nodes)...), t.Name()
				// lossy is a client to which the replies of so many nodes to the next step are lost, once.
				lossy := func(step string, of int) (client *redlatch.Client, lose, over func()) {
					proxies := redistest.Proxies(t, nodes)
					client, wires := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)), locktest.Taps(proxies)
					lose = func() {
						for _, w := range wires[:of] {
							w.Lose(step, how)
						}
					}
					return client, lose, func() {
						for _, p := range proxies { // a connection that lost a reply stays silent
							p.DropReplies(true)
							p.DropReplies(false)
						}
						awaitNoPermits(t, nodes, name, 3)
						for _, w := range wires {
							w.CheckOnce(t, "slot", "acquire")
						}
					}
				}
				client, lose, over := lossy("slot", n)
				lose()
				lock, err := client.TryLock(t.Context(), name, redlatch.WithPermits(3))
				if lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Fatalf("held %t, %v", lock != nil, err)
				}
				over()
				locktest.Unlock(t, locktest.TryLock(t, client, name, redlatch.WithPermits(3)))
				// Another client: that one may still make sure of its releases.
				client, lose, over = lossy("release-slot", n/2+1)
				lock = locktest.TryLock(t, client, name, redlatch.WithPermits(3))
				lose()
				if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
					t.Errorf("unlock: %v", err)
				}
				over()
			})
		}
	}
}

// What holders that are killed have held is free after their TTL, for all who wait, and not before.
func TestPermitsOfCrashedHolders(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			const k = 2
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			c, name := locktest.Config(locktest.ProxyURLs(proxies)...), t.Name()
			holder := locktest.Open(t, c)
			var until [k]time.Time
			var tokens [k]uint64
			for range k {
				lock := locktest.TryLock(t, holder, name, redlatch.WithPermits(k), redlatch.WithTTL(time.Second), redlatch.WithoutRenewal())
				until[lock.Slot()], tokens[lock.Slot()] = lock.Until(), lock.Token()
			}
			for _, p := range proxies { // nothing of the holder arrives any more
				p.BlackHole(redistest.Requests, true)
			}
			var outs []<-chan locktest.Outcome
			for range 2 * k {
				other := locktest.Open(t, locktest.Through(c, redistest.URLs(nodes)...))
				outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), other, name, redlatch.WithPermits(k)))
			}
			var all sync.WaitGroup
			for _, out := range outs {
				all.Go(func() {
					o := <-out
					if o.Err != nil {
						t.Error(o.Err)
						return
					}
					slot := o.Lock.Slot()
					if now := time.Now(); now.Before(until[slot]) {
						t.Errorf("slot %d is had by another %v before the end of the validity", slot, until[slot].Sub(now))
					}
					if o.Lock.Token() <= tokens[slot] {
						t.Errorf("slot %d: token %d follows %d", slot, o.Lock.Token(), tokens[slot])
					}
					locktest.Unlock(t, o.Lock)
				})
			}
			all.Wait()
			awaitNoPermits(t, nodes, name, k)
		})
	}
}
