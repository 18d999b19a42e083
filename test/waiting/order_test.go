package waiting

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// queueUp has each client wait for name, one after the other, and returns where
// their outcomes will be.
func queueUp(t *testing.T, nodes []*redistest.Server, clients []*redlatch.Client, name string, before int, options ...redlatch.Option) []<-chan locktest.Outcome {
	t.Helper()
	outs := make([]<-chan locktest.Outcome, len(clients))
	given := locktest.Within(t, time.Duration(len(clients)+1)*locktest.Patience) // the first also waits for all others to come
	for i, client := range clients {
		outs[i] = locktest.LockIn(given, client, name, options...)
		awaitQueued(t, nodes, name, before+i+1)
	}
	return outs
}

func clientsOf(t *testing.T, c redlatch.Config, n int) []*redlatch.Client {
	t.Helper()
	clients := make([]*redlatch.Client, n)
	for i := range clients {
		clients[i] = locktest.Open(t, c)
	}
	return clients
}

// Processes have the lock in the order in which they came.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 2, 3, 5} {
			nodes := locktest.SharedOf(t, binary, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			holder, clients := locktest.Open(t, c), clientsOf(t, c, 6)
			inTurn(t, nodes, "0 1 2 3 4 5", func(try int) string {
				name := fmt.Sprintf("%s/%d/%d", t.Name(), n, try)
				first := locktest.TryLock(t, holder, name)
				outs := queueUp(t, nodes, clients, name, 0)
				gate := &locktest.Turnstile{T: t}
				locktest.Unlock(t, first)
				passAll(t, gate, outs)
				awaitQueued(t, nodes, name, 0)
				return gate.Whole()
			})
		}
	})
}

// Callers of one process have it in their order, and the process has one ticket.
func TestCallersOfOneProcessWaitInOrder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		first, waiter := locktest.TryLock(t, locktest.Open(t, c), name), locktest.Open(t, c)
		gate := &locktest.Turnstile{T: t}
		var group sync.WaitGroup
		var want []string
		const callers = 20
		given := locktest.Within(t, callers*locktest.Patience) // the first also waits for all others to come
		for i := range callers {
			report, waits := locktest.WhenWaiting(nil)
			out := locktest.LockIn(given, waiter, name, report)
			<-waits
			want = append(want, fmt.Sprint(i))
			group.Go(func() { gate.PassNext(out, fmt.Sprint(i)) })
			awaitQueued(t, nodes, name, 1)
		}
		locktest.Unlock(t, first)
		group.Wait()
		if got := gate.Whole(); got != strings.Join(want, " ") {
			t.Errorf("N=%d: the order was %s", n, got)
		}
		awaitQueued(t, nodes, name, 0)
	}
}

// Clients that come back at once share the lock evenly.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		nodes := locktest.Shared(t, n)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		gate := &locktest.Turnstile{T: t}
		first := locktest.TryLock(t, locktest.Open(t, c), name)
		const clients, rounds = 8, 25
		var group sync.WaitGroup
		for i, client := range clientsOf(t, c, clients) {
			group.Go(func() {
				// The last rounds are those of who is left.
				for gate.Passed() < clients*rounds {
					lock, err := client.Lock(locktest.Within(t, locktest.Patience), name)
					if err != nil {
						t.Error(err)
						return
					}
					gate.Pass(lock, fmt.Sprint(i))
				}
			})
		}
		awaitQueued(t, nodes, name, clients)
		locktest.Unlock(t, first)
		group.Wait()
		if t.Failed() {
			return
		}
		var sum, squares float64
		each := make(map[string]int)
		for _, who := range gate.Order[:clients*rounds] {
			each[who]++
		}
		for _, k := range each {
			sum += float64(k)
			squares += float64(k) * float64(k)
		}
		fairness := sum * sum / (clients * squares)
		t.Logf("N=%d: fairness %.3f, %v", n, fairness, each)
		if fairness < 0.95 {
			t.Errorf("N=%d: Jain's index is %.3f: %v", n, fairness, each)
		}
	}
}

// One who is cancelled is out of the queue at once, wherever it is in it, and the
// others go on without a pause.
func TestCancelledWaiterLeavesTheQueue(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		holder := locktest.Open(t, c)
		first := locktest.TryLock(t, holder, name, redlatch.WithLabel("the first"))
		clients := clientsOf(t, c, 4)
		cause := errors.New("changed its mind")
		var outs []<-chan locktest.Outcome
		var cancels []context.CancelCauseFunc
		for i, client := range clients {
			ctx, cancel := context.WithCancelCause(locktest.Within(t, locktest.Patience))
			outs, cancels = append(outs, locktest.LockIn(ctx, client, name)), append(cancels, cancel)
			awaitQueued(t, nodes, name, i+1)
		}
		for k, i := range []int{0, 2} { // the first in the queue, and one in the middle
			cancels[i](cause)
			o := <-outs[i]
			if o.Lock != nil || !errors.Is(o.Err, cause) || !errors.Is(o.Err, redlatch.ErrHeld) {
				t.Errorf("%v, %v", o.Lock, o.Err)
			}
			if who, _, ok := locktest.FailureOf(t, o.Err).Holder(); !ok || who.Label != "the first" {
				t.Errorf("who held it is not told: %v", o.Err)
			}
			awaitQueued(t, nodes, name, 3-k)
		}
		locktest.Unlock(t, first)
		for _, i := range []int{1, 3} {
			o := <-outs[i]
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			locktest.Unlock(t, o.Lock)
		}
	}
}

// One who is cancelled before it knows of its ticket leaves none behind.
func TestCancelledWhileJoining(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		proxies := redistest.Proxies(t, nodes)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		holder, waiter := locktest.Open(t, c), locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
		locktest.Unlock(t, locktest.TryLock(t, holder, name)) // the servers have the script from then on
		first := locktest.TryLock(t, holder, name)
		ctx, cancel := context.WithCancel(t.Context())
		var left atomic.Bool
		for _, p := range proxies {
			p.OnCommand(func(c redistest.Command) redistest.Action {
				if slices.Contains(c.Args, "enqueue") {
					p.HoldBack(redistest.Replies, true)
				}
				if step, _ := locktest.StepOf(c); step == "release" && c.Args[len(c.Args)-1] == "0" {
					left.Store(true) // it gives its place up
				}
				return redistest.Pass
			})
		}
		out := locktest.LockIn(ctx, waiter, name)
		arbiter := awaitQueued(t, nodes, name, 1)
		cancel()
		if o := <-out; !errors.Is(o.Err, context.Canceled) {
			t.Errorf("%v, %v", o.Lock, o.Err)
		}
		locktest.Await(t, "its place is given up", left.Load) // else it is there until it lapses
		awaitQueued(t, nodes, name, 0)
		proxies[arbiter].HoldBack(redistest.Replies, false)
		locktest.Unlock(t, first)
	}
}

// Waiters change their mind at any moment, also while they are being woken up:
// whoever stays gets the lock, and nothing is left of the others.
func TestCancelledAtRandom(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		gate := &locktest.Turnstile{T: t}
		var group sync.WaitGroup
		for i, client := range clientsOf(t, c, 6) {
			for k := range 3 {
				rng := rand.New(rand.NewPCG(base, uint64(10*i+k)))
				group.Go(func() {
					for round := range 20 {
						d := locktest.Patience
						if rng.IntN(3) > 0 && round != 19 {
							d = time.Duration(rng.Int64N(int64(10 * time.Millisecond)))
						}
						ctx, cancel := context.WithTimeout(t.Context(), d)
						lock, err := client.Lock(ctx, name)
						cancel()
						switch {
						case err == nil:
							gate.Pass(lock, fmt.Sprint(i))
						case d == locktest.Patience || !errors.Is(err, context.DeadlineExceeded):
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		t.Logf("N=%d: %d had it", n, gate.Passed())
		awaitQueued(t, nodes, name, 0)
		for _, s := range nodes {
			locktest.AwaitValue(t, s, name, "")
		}
	}
}

// A waiter's process is killed, or its network is: it loses its ticket, and those
// behind it wait for a moment.
func TestDeadWaiterHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for what, die := range map[string]func(t *testing.T, proxies []*redistest.Proxy){
			"gone": func(t *testing.T, proxies []*redistest.Proxy) {
				for _, p := range proxies {
					if err := p.Refuse(true); err != nil {
						t.Fatal(err)
					}
					p.Cut()
				}
			},
			"cut off": func(t *testing.T, proxies []*redistest.Proxy) {
				for _, p := range proxies {
					p.BlackHole(redistest.Both, true)
				}
			},
			"hung": func(t *testing.T, proxies []*redistest.Proxy) {
				for _, p := range proxies {
					p.HoldBack(redistest.Both, true)
				}
			},
		} {
			t.Run(fmt.Sprintf("N=%d %s", n, what), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, n)
				proxies := redistest.Proxies(t, nodes)
				c := locktest.Config(redistest.URLs(nodes)...)
				first, dying := locktest.TryLock(t, locktest.Open(t, c), t.Name()), locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
				ctx, cancel := context.WithCancel(t.Context())
				out := locktest.LockIn(ctx, dying, t.Name())
				awaitQueued(t, nodes, t.Name(), 1)
				next := queueUp(t, nodes, clientsOf(t, c, 2), t.Name(), 1)
				die(t, proxies)
				locktest.Unlock(t, first)
				start := time.Now()
				for _, out := range next {
					o := <-out
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					locktest.Unlock(t, o.Lock)
				}
				t.Logf("two had it %v after the release", time.Since(start).Round(time.Millisecond))
				cancel()
				if o := <-out; o.Lock != nil {
					t.Error("the dead one has it")
				}
				for _, p := range proxies {
					p.BlackHole(redistest.Both, false)
					p.HoldBack(redistest.Both, false)
				}
				awaitQueued(t, nodes, t.Name(), 0)
			})
		}
	}
}

// A holder is killed: its lock is free at its TTL, and the first in the queue has it
// soon after.
func TestHeadTakesAnExpiredLock(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			clients := clientsOf(t, c, 3)
			// The best of many: a busy machine may be late for a timer. By heartbeats alone it would be 0.9 s.
			const soon = 700 * time.Millisecond
			best := locktest.Patience
			for round := 0; round < 5 || best > soon && round < 50; round++ {
				name := fmt.Sprintf("%s/%d", t.Name(), round)
				first := locktest.TryLock(t, clients[0], name, redlatch.WithTTL(500*time.Millisecond), redlatch.WithoutRenewal())
				free := first.Until() // and a little later
				head, waits := locktest.WhenWaiting(nil)
				outs := []<-chan locktest.Outcome{locktest.LockIn(locktest.Within(t, locktest.Patience), clients[1], name, head)}
				select {
				case <-waits:
				case o := <-outs[0]: // a busy machine asked for it when it was free
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					locktest.Unlock(t, o.Lock)
					continue
				}
				inTime := time.Now().Before(free) // it was queued
				outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), clients[2], name))
				for range outs {
					var o locktest.Outcome
					select {
					case o = <-outs[0]:
					case o = <-outs[1]:
					}
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					if inTime {
						best = min(best, time.Since(free))
					}
					if first.Err() == nil {
						t.Error("the first one is held still")
					}
					locktest.Unlock(t, o.Lock)
				}
			}
			t.Logf("the head had it %v after the expiry, at best", best.Round(time.Microsecond))
			if best > soon {
				t.Errorf("the head had it %v after the expiry, at best", best)
			}
		})
	}
}

// One who does not queue has the lock beside those who do.
func TestWithoutQueue(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		gate := &locktest.Turnstile{T: t}
		var group sync.WaitGroup
		for i, client := range clientsOf(t, c, 4) {
			var options []redlatch.Option
			if i == 0 {
				options = append(options, redlatch.WithoutQueue())
			}
			group.Go(func() {
				for range 10 {
					lock, err := client.Lock(locktest.Within(t, locktest.Patience), name, options...)
					if err != nil {
						t.Error(err)
						return
					}
					gate.Pass(lock, fmt.Sprint(i))
				}
			})
		}
		group.Wait()
		if gate.Passed() != 40 {
			t.Errorf("%d had it", gate.Passed())
		}
		// It is never queued.
		first := locktest.TryLock(t, locktest.Open(t, c), name)
		report, waits := locktest.WhenWaiting(nil)
		out := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.Open(t, c), name, redlatch.WithoutQueue(), report)
		<-waits
		awaitQueued(t, nodes, name, 0)
		locktest.Unlock(t, first)
		if o := <-out; o.Err != nil {
			t.Error(o.Err)
		} else {
			locktest.Unlock(t, o.Lock)
		}
	}
}

// What waiting cannot cure comes back at once, also to those who wait already
// and to the callers behind them.
func TestWaitersAreRefused(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		node := locktest.SharedOf(t, binary, 1)[0]
		c := locktest.Config(node.URL())
		client := locktest.Open(t, c)
		locktest.Do(t, node, "SET", t.Name(), "theirs", "PX", "60000")
		var outs []<-chan locktest.Outcome
		for range 3 {
			report, waits := locktest.WhenWaiting(nil)
			outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), report))
			<-waits
		}
		locktest.Do(t, node, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')", "1", t.Name())
		for _, out := range outs {
			o := <-out
			if !errors.Is(o.Err, redlatch.ErrRefused) || !strings.Contains(fmt.Sprint(o.Err), "WRONGTYPE") {
				t.Errorf("%v, %v", o.Lock, o.Err)
			}
		}
		awaitQueued(t, []*redistest.Server{node}, t.Name(), 0)
		locktest.Do(t, node, "DEL", t.Name())
	})
}
