package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// The end of a ticket does not take away the one that the process has taken since (Queue.pass
// gives the queue up before it leaves the ticket).
func TestEndOfATicketIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, k := heldNode()
		q := newQueue(t, "one", nodes, nil)
		before := q.join(key, false)
		p := q.join(key, false)
		before.Leave()
		out := awaiting(t.Context(), p, 0)
		settle()
		start := time.Now()
		k.release(false)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 10*travel {
			t.Errorf("it was woken up %v after the release", took)
		}
		p.Leave()
		settle()
	})
}

// Of several notices that a waiter has not looked at yet, the last one that makes it its turn counts: what an earlier
// holder left may be gone.
func TestNoticeThatStays(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "one", newNodes(1), nil)
	p := q.join(key, false)
	wake := func(from string) { q.Wake(0, vote.WakeUp{Waiter: p.waiter, Key: key, From: from}) }
	q.Changed(key)
	wake("before")
	wake("last")
	q.Changed(key)
	if len(p.woken) != 1 {
		t.Fatal("it is not woken up")
	}
	if n := <-p.woken; n != (notice{turn: true, from: "last"}) {
		t.Errorf("it is told %+v", n)
	}
}

// Who has the lock gives its ticket up where the arbiter's own vote failed, and nothing else:
// its key on the arbiter stays, and so do those that were left to it, which are its own by
// now.
func TestTakenGivesUpTheTicketAlone(t *testing.T) {
	t.Parallel()
	failed := errors.New("connection reset")
	for _, answer := range []vote.Answer{
		{Verdict: vote.Unknown, Err: failed}, {Verdict: vote.NotSent, Err: failed},
		{Verdict: vote.NotOurs}, {Verdict: vote.Held}, {Verdict: vote.NotAdmitted},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			k := arbiter(t, nodes)
			k.set(func(k *node) { k.holder = "before" })
			q := newQueue(t, "one", nodes, nil)
			p := q.join(key, false)
			out := awaiting(t.Context(), p, 0)
			settle()
			k.set(func(k *node) { k.from = "before" })
			k.release(false)
			if err := <-out; err != nil {
				t.Fatal(err)
			}
			attempt := request
			attempt.ID = "mine"
			if attempt = p.Attempt(attempt); attempt.From != "before" {
				t.Fatalf("it takes over what %q left", attempt.From)
			}
			k.set(func(k *node) { k.holder = attempt.ID })
			time.Sleep(20 * time.Millisecond) // its caller is held up
			p.Taken()
			p.Heard(answer)
			settle()
			k.set(func(k *node) {
				if k.holder != attempt.ID || len(k.forgone) > 0 {
					t.Errorf("after %v the key is %q's, and given up were %q", answer.Verdict, k.holder, k.forgone)
				}
			})
			if left := k.order(); len(left) > 0 {
				t.Errorf("after %v there are still tickets: %q", answer.Verdict, left)
			}
		})
	}
}

// Where an earlier attempt is still being undone, which may take the place anew, a grant does not end the place: it is given
// up when that is over.
func TestPlaceBesideAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			k := arbiter(t, nodes)
			p := newQueue(t, "one", nodes, nil).join(key, false)
			if err := p.Await(t.Context(), 0, quiet); err != nil {
				t.Fatal(err)
			}
			attempt := request
			for i := range attempts {
				attempt.ID = fmt.Sprint("attempt ", i)
				attempt = p.Attempt(attempt)
			}
			attempt.Ticket.Undoing.Add(1)
			p.Taken()
			p.Heard(vote.Answer{Verdict: vote.Granted})
			settle()
			before := len(k.order())
			attempt.Ticket.Undoing.Done()
			settle()
			// The node of this test does not end the place by itself.
			if after := len(k.order()); before != 1 || (after == 0) != (attempts > 1) {
				t.Errorf("after %d attempts: %d places, and %d when the attempts were undone", attempts, before, after)
			}
		})
	}
}

// A process keeps no place on a node whose answers come too late for it: it could not take the key, and others would
// wait for it. It keeps its number for a node that answers in time.
func TestNoPlaceWhereAnswersAreLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, k := range nodes {
			k.set(func(k *node) { k.holder, k.ticket = "ours", 7 })
		}
		q := newQueue(t, "one", nodes, nil)
		p := q.join(key, false)
		places := func() (names []string, number uint64) {
			for _, i := range p.order {
				nodes[i].set(func(k *node) {
					for _, number = range k.queue {
						names = append(names, k.name)
					}
				})
			}
			return names, number
		}
		slow := func(i int, d time.Duration) { nodes[p.order[i]].set(func(k *node) { k.slow = d }) }
		out := awaiting(t.Context(), p, 0)
		time.Sleep(timeout)
		_, number := places()
		for i := range 3 {
			if got, n := places(); !slices.Equal(got, []string{nodes[p.order[i]].name}) || n != number {
				t.Errorf("with %d late nodes there are places on %v, number %d, not %d", i, got, n, number)
			}
			slow(i, 2*timeout)
			time.Sleep(heartbeat + 4*timeout)
		}
		if err := <-out; !errors.Is(err, errNoQueue) {
			t.Fatal(err)
		}
		if got, _ := places(); len(got) > 0 {
			t.Errorf("with late nodes only there are places on %v", got)
		}
		slow(0, 0)
		out = awaiting(t.Context(), p, 0)
		time.Sleep(timeout)
		if _, n := places(); n != number {
			t.Errorf("its number is %d, was %d", n, number)
		}
		nodes[p.order[0]].release(false)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		p.Leave()
		settle()
	})
}

// wanting is a caller that wants key, of which nothing else is asked.
type wanting struct{ Caller }

func (wanting) Key() string { return key }

// The last caller of a process that leaves the queue gives up the place, also while another caller holds the key
// that had no place.
func TestLastCallerLeavesWhileAnotherHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, k := heldNode()
		q := newQueue(t, "p", nodes, nil)
		l, _ := q.enter(wanting{})
		l.ticket = q.join(key, false)
		ctx, cancel := context.WithCancel(t.Context())
		out := awaiting(ctx, l.ticket, 0)
		settle()
		_, behind := q.enter(wanting{})
		holder := &Holder{Caller: wanting{}}
		q.Acquired(holder)
		cancel()
		<-out
		q.pass(l)
		settle()
		if order := k.order(); len(order) != 1 {
			t.Errorf("a caller waits, and the queue is %v", order)
		}
		q.quit(l, behind)
		settle()
		if order := k.order(); len(order) > 0 {
			t.Errorf("the queue is %v", order)
		}
		q.LetGo(holder)
		if len(q.locals) > 0 {
			t.Errorf("left in the process: %v", q.locals)
		}
	})
}

// A process that is no longer told of wake-ups, or is told again, has another name on the node. If that node's answer
// comes too late, it gives up the place of that name, too: it would be woken up there in vain.
func TestNoPlaceUnderAnotherName(t *testing.T) {
	t.Parallel()
	for _, hears := range []bool{true, false} {
		for _, gone := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				nodes, k := heldNode()
				k.set(func(k *node) { k.deaf = hears })
				q := newQueue(t, "one", nodes, nil)
				p := q.join(key, false)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				out := awaiting(ctx, p, 0)
				time.Sleep(5 * travel) // no answer is under way
				k.set(func(k *node) { k.deaf, k.slow = !hears, timeout })
				q.Changed("")
				if gone {
					time.Sleep(10 * travel)
					cancel()
				}
				if err := <-out; err == nil {
					t.Fatal("its turn has come")
				}
				k.set(func(k *node) { k.slow = 0 })
				p.Leave()
				settle()
				if order := k.order(); len(order) > 0 {
					t.Errorf("hears: %v, its caller has gone: %v: the queue is %q", hears, gone, order)
				}
			})
		}
	}
}

// A place is given up once, also where no node answers for long.
func TestPlaceIsGivenUpOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		p := newQueue(t, "one", nodes, nil).join(key, false)
		if err := p.Await(t.Context(), 0, quiet); err != nil {
			t.Fatal(err)
		}
		p.from = "before"
		nodes[0].set(func(k *node) { k.down = true })
		for range 3 {
			if err := p.Await(t.Context(), 0, quiet); err != errNoQueue {
				t.Error(err)
			}
		}
		p.Leave()
		settle()
		if n := len(nodes[0].forgone); n != 1 {
			t.Errorf("given up %d times", n)
		}
	})
}

// ending is a node whose answer comes just before the end of a caller's ctx.
type ending struct {
	endpoint
	end func()
}

func (e ending) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	defer e.end()
	return e.endpoint.Enqueue(ctx, r)
}

// A place that is given when the caller's ctx ends is given up: the process does not know of it.
func TestNoPlaceAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, k := heldNode()
		q := newQueue(t, "one", nodes, nil)
		ctx, cancel := context.WithCancel(t.Context())
		q.Use([]Node{ending{endpoint{k, 0, q}, cancel}})
		p := q.join(key, false)
		if err := p.Await(ctx, 0, quiet); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		p.Leave()
		settle()
		if order := k.order(); len(order) > 0 {
			t.Errorf("the queue is %q", order)
		}
	})
}

// What undoes the attempts after a place was given up is counted anew: the count of those before is being waited for.
func TestUndoingAfterAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := heldNode()
		p := newQueue(t, "one", nodes, nil).join(key, false)
		before := p.Attempt(request).Ticket.Undoing
		if again := p.Attempt(request).Ticket.Undoing; again != before {
			t.Error("two attempts with one place are counted apart")
		}
		p.abandon()
		if after := p.Attempt(request).Ticket.Undoing; after == before {
			t.Error("the next attempt is added to what is waited for")
		}
		settle()
	})
}

// A waiter that is told of nothing, or not of a foreign holder's key, asks often; one that is first, or behind one that was
// woken up, asks when the key, or that turn, is over; and any other only keeps its place.
func TestPauses(t *testing.T) {
	t.Parallel()
	const soon, keep = 100 * time.Millisecond, heartbeat - heartbeat/20 + heartbeat/20
	held := vote.Answer{Verdict: vote.Held, Holder: "ours"}
	expiring, over, forEver, reserved := held, held, held, held
	expiring.Left, over.Left, forEver.Left = soon, 0, -1
	reserved.Left, reserved.Holder = soon, ""
	for what, c := range map[string]struct {
		position vote.Position
		watch    bool
		want     time.Duration
	}{
		"first":                          {vote.Position{Answer: expiring, Hears: true}, false, soon + late},
		"first, less than 1 ms left":     {vote.Position{Answer: over, Hears: true}, false, late},
		"first, without expiry":          {vote.Position{Answer: forEver, Hears: true}, false, keep},
		"second":                         {vote.Position{Answer: expiring, Hears: true, Ahead: 1}, false, keep},
		"behind one that was woken up":   {vote.Position{Answer: reserved, Hears: true, Ahead: 1}, false, soon + late},
		"deaf":                           {vote.Position{Answer: forEver, Ahead: 1}, false, poll},
		"of a foreign key, told of that": {vote.Position{Answer: forEver, Hears: true, Watched: true}, true, keep},
		"of a foreign key, not told":     {vote.Position{Answer: forEver, Hears: true}, true, poll},
	} {
		p := newQueue(t, "one", newNodes(1), nil).join(key, false)
		p.position, p.watch = c.position, c.watch
		if got := p.pause(); got != c.want {
			t.Errorf("%s: it asks after %v, want %v", what, got, c.want)
		}
	}
}

// One that sees that another has got the key in its turn has a new turn when that one releases it. A turn goes on where it
// sees but its own attempt, which is being undone: after too long it loses the place, and may begin anew.
func TestTurnAfterAnotherHolder(t *testing.T) {
	t.Parallel()
	for holder, anew := range map[string]bool{"ours": true, "mine": false} {
		synctest.Test(t, func(t *testing.T) {
			nodes, k := heldNode()
			p := newQueue(t, "one", nodes, nil).join(key, false)
			turn := func() vote.Acquire {
				out := awaiting(t.Context(), p, 0)
				time.Sleep(2 * script.Grace)
				k.release(false)
				if err := <-out; err != nil {
					t.Fatal(err)
				}
				attempt := request
				attempt.ID = "mine"
				return p.Attempt(attempt)
			}
			turn()
			k.set(func(k *node) { k.holder, k.woken = holder, "" })
			if keeps := turn().Ticket.Number > 0; keeps != anew {
				t.Errorf("after %q has had the key it keeps the place: %t", holder, keeps)
			}
			k.set(func(k *node) { k.holder, k.woken = "mine", "" })
			if keeps := turn().Ticket.Number > 0; keeps == anew {
				t.Errorf("after %q and then its own attempt have had the key it keeps the place: %t", holder, keeps)
			}
			p.Leave()
			settle()
		})
	}
}
