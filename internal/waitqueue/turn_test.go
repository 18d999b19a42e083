package waitqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/vote"
)

// A ticket whose process has forgotten it is given up when it is woken up, and the
// next comes at once.
func TestForgottenTicketIsWokenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, k := heldNode()
		q := newQueue(t, "one", nodes, nil)
		forgotten := request
		forgotten.Ticket.Waiter = "one/old"
		q.nodes[0].Enqueue(t.Context(), vote.Enqueue{Key: key, Ticket: forgotten.Ticket})
		p := newQueue(t, "two", nodes, nil).join(key, false)
		out := awaiting(t.Context(), p, 0)
		settle()
		start := time.Now()
		k.release(false)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 3*travel {
			t.Errorf("the next came after %v", took)
		}
		p.Leave()
		settle()
	})
}

// twoInTurn returns a key that was released, the ticket of the first in its queue, which was woken up, and that of the
// second, with the channel on which its wait ends.
func twoInTurn(t *testing.T) (k *node, one, two *Ticket, second <-chan error) {
	nodes, k := heldNode()
	one, two = newQueue(t, "one", nodes, nil).join(key, false), newQueue(t, "two", nodes, nil).join(key, false)
	first := awaiting(t.Context(), one, 0)
	settle()
	second = awaiting(t.Context(), two, 0)
	settle()
	k.release(false)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	return k, one, two, second
}

// A turn that is not used ends when the arbiter gives it to the next: the ticket
// is lost, and the next time it is at the end of the queue.
func TestTurnThatIsNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, one, two, second := twoInTurn(t)
		ticket := one.Attempt(request).Ticket.Number
		// Its quorum is missing: try after try fails.
		for range 10 {
			time.Sleep(script.Grace / 8)
			one.Attempt(request)
		}
		if got := one.Attempt(request).Ticket; got.Number == ticket {
			t.Error("it keeps its ticket")
		}
		if err := one.Await(t.Context(), 0, quiet); err == nil {
			if err := <-second; err != nil {
				t.Error(err)
			}
		}
		if order := k.order(); len(order) == 2 && process(order[0]) == "one" {
			t.Errorf("the queue is %v", order)
		}
		one.Leave()
		two.Leave()
		settle()
	})
}

// While the first in the queue was woken up and has not taken the key yet, it is nobody else's turn, though the key is
// free.
func TestTurnOfTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, one, two, second := twoInTurn(t)
		two.queue.Changed(key) // it asks, and hears that the key is free
		settle()
		pending(t, second)
		one.Leave()
		if err := <-second; err != nil {
			t.Error(err)
		}
		two.Leave()
		settle()
	})
}

// Messages of tickets that were left are of no effect on the next of the same
// process.
func TestLateWakeUps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, k := heldNode()
		q := newQueue(t, "p", nodes, nil)
		old := q.join(key, false)
		ctx, cancel := context.WithCancel(t.Context())
		out := awaiting(ctx, old, 0)
		settle()
		cancel()
		<-out
		waiter := old.waiter
		old.Leave()
		next := q.join(key, false)
		out = awaiting(t.Context(), next, 0)
		settle()
		q.Wake(0, vote.WakeUp{Waiter: waiter, Key: key})
		q.Wake(0, vote.WakeUp{Waiter: waiter, Key: "another"})
		q.Changed("another")
		settle()
		pending(t, out)
		k.release(false)
		if err := <-out; err != nil {
			t.Error(err)
		}
		next.Leave()
		settle()
		q.Close()
		q.Wake(0, vote.WakeUp{Waiter: waiter, Key: key}) // nothing is sent any more
	})
}

// Processes that wait, take, leave, die and come again at random, on nodes that
// go down and lose wake-ups: never is the queue stuck for longer than a turn and a
// heartbeat.
func TestNeverStuckAtRandom(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	for run := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(base, run))
			nodes := newNodes(3)
			var mu sync.Mutex // guards rng and the last take
			last := time.Now()
			longest := time.Duration(0)
			draw := func(d time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(rng.Int64N(int64(d)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var group sync.WaitGroup
			for i := range 5 {
				q := newQueue(t, fmt.Sprint("p", i), nodes, draw)
				group.Go(func() {
					for ctx.Err() == nil {
						patience, end := context.WithTimeout(ctx, draw(20*time.Second))
						p := q.join(key, false)
						err := p.Await(patience, 0, quiet)
						end()
						c := p.Attempt(request)
						if err != nil || !nodes[p.Arbiter()].take("ours", c.Ticket.Waiter, time.Second) {
							p.Leave()
							time.Sleep(draw(20 * time.Millisecond))
							continue
						}
						takenByGrant(p)
						mu.Lock()
						longest = max(longest, time.Since(last))
						mu.Unlock()
						hold := draw(30 * time.Millisecond)
						time.Sleep(hold)
						nodes[p.Arbiter()].release(false)
						mu.Lock()
						last = time.Now()
						mu.Unlock()
					}
				})
			}
			for ctx.Err() == nil {
				k := nodes[draw(3)]
				k.set(func(k *node) { k.mute = !k.mute })
				time.Sleep(draw(3 * time.Second))
			}
			group.Wait()
			settle()
			if bound := time.Second + script.Grace + 2*heartbeat; longest > bound {
				t.Errorf("run %d: nobody had it for %v, want %v at most", run, longest, bound)
			}
		})
	}
}
