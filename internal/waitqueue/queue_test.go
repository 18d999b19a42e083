package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// The order in which nodes are asked is the same in every process, and spreads
// over the nodes.
func TestOrder(t *testing.T) {
	t.Parallel()
	nodes := newNodes(5)
	one, other := newQueue(t, "one", nodes, nil), newQueue(t, "other", []*node{nodes[3], nodes[1], nodes[4], nodes[0], nodes[2]}, nil)
	first := make(map[string]int)
	for i := range 1000 {
		name := fmt.Sprint("key", i)
		var a, b []string
		for _, k := range one.Order(name) {
			a = append(a, one.nodes[k].Name())
		}
		for _, k := range other.Order(name) {
			b = append(b, other.nodes[k].Name())
		}
		if !slices.Equal(a, b) {
			t.Fatalf("%s: %v and %v", name, a, b)
		}
		first[a[0]]++
	}
	for name, n := range first {
		if n < 100 || n > 350 {
			t.Errorf("%s keeps %d of 1000 queues", name, n)
		}
	}
	if len(first) != 5 {
		t.Errorf("queues are kept by %v", first)
	}
}

// The first in the queue is woken up when the key is released, after one message's
// time, and nobody asks but to keep the ticket.
func TestWokenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		k := arbiter(t, nodes)
		k.set(func(k *node) { k.holder = "ours" })
		var tickets []*Ticket
		var outs []<-chan error
		for i := range 4 {
			p := newQueue(t, fmt.Sprint("p", i), nodes, nil).join(key, false)
			tickets, outs = append(tickets, p), append(outs, awaiting(t.Context(), p, 0))
			settle()
		}
		const hours = 2
		time.Sleep(hours * time.Hour)
		synctest.Wait()
		if most := 4 * (int(hours*time.Hour/(heartbeat-heartbeat/20)) + 1); k.asked() > most {
			t.Errorf("asked %d times in %d h, want %d at most", k.asked(), hours, most)
		}
		for i, out := range outs {
			pending(t, out)
			start := time.Now()
			k.release(false)
			if err := <-out; err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > travel {
				t.Errorf("waiter %d was woken up after %v", i, took)
			}
			if got := tickets[i].Attempt(request).Ticket; !k.take("ours", got.Waiter, 0) {
				t.Errorf("waiter %d may not take it", i)
			}
			takenByGrant(tickets[i])
			settle()
			for _, later := range outs[i+1:] {
				pending(t, later)
			}
		}
		if len(k.queue) != 0 {
			t.Errorf("left: %v", k.order())
		}
	})
}

// The key expires: the first in the queue looks within two milliseconds and a
// round trip.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{3 * time.Millisecond, 400 * time.Millisecond, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(1)
			k := nodes[0]
			end := time.Now().Add(left)
			k.set(func(k *node) { k.holder, k.expires = "ours", end })
			first, second := newQueue(t, "first", nodes, nil).join(key, false), newQueue(t, "second", nodes, nil).join(key, false)
			out := awaiting(t.Context(), first, 0)
			time.Sleep(travel / 2)
			behind := awaiting(t.Context(), second, 0)
			if err := <-out; err != nil {
				t.Fatal(err)
			}
			if late := time.Since(end); late < 0 || late > 2*time.Millisecond+2*travel {
				t.Errorf("%v left: it came %v after the end", left, late)
			}
			pending(t, behind)
			k.take("ours", first.Attempt(request).Ticket.Waiter, time.Second)
			takenByGrant(first)
			if err := <-behind; err != nil {
				t.Fatal(err)
			}
			second.Leave()
			settle()
		})
	}
}

// The wake-up is lost: the one who was woken up comes by its own timer, and so does
// the next when that one never comes.
func TestWakeUpIsLost(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(1)
			k := nodes[0]
			k.set(func(k *node) { k.holder = "ours" })
			ctx, die := context.WithCancel(t.Context())
			first, second := newQueue(t, "first", nodes, nil), newQueue(t, "second", nodes, nil)
			one := first.join(key, false)
			outs := []<-chan error{awaiting(ctx, one, 0)}
			settle()
			two := second.join(key, false)
			outs = append(outs, awaiting(t.Context(), two, 0))
			settle()
			if dies {
				die() // and says nothing: its process is gone
				<-outs[0]
			}
			k.set(func(k *node) { k.mute = true })
			start := time.Now()
			k.release(false)
			who := one
			if dies {
				who = two
				if err := <-outs[1]; err != nil {
					t.Fatal(err)
				}
			} else if err := <-outs[0]; err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > script.Grace+heartbeat*11/10 {
				t.Errorf("dies %t: it came after %v", dies, took)
			}
			if !k.take("ours", who.Attempt(request).Ticket.Waiter, 0) {
				t.Errorf("dies %t: it may not take it", dies)
			}
			die()
			if !dies {
				pending(t, outs[1])
			}
			one.Leave()
			two.Leave()
			if !dies {
				k.release(false)
				<-outs[1]
			}
			settle()
		})
	}
}

// A server that cannot wake anybody up is asked more often.
func TestDeafWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		k := nodes[0]
		k.set(func(k *node) { k.holder, k.deaf = "ours", true })
		p := newQueue(t, "p", nodes, nil).join(key, false)
		out := awaiting(t.Context(), p, 0)
		time.Sleep(time.Minute + heartbeat/2)
		start := time.Now()
		k.release(false)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > poll+2*travel {
			t.Errorf("it came after %v", took)
		}
		p.Leave()
		settle()
	})
}

// A holder of another library wakes nobody up: the first in the queue, and nobody else, watches from its second question on,
// and comes after one message's time and a round trip.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		k := nodes[0]
		k.set(func(k *node) { k.holder = "theirs" })
		p := newQueue(t, "p", nodes, nil).join(key, false)
		out := awaiting(t.Context(), p, 0)
		settle()
		ctx, cancel := context.WithCancel(t.Context())
		second := newQueue(t, "second", nodes, nil).join(key, false)
		behind := awaiting(ctx, second, 0)
		settle()
		if len(k.watching) != 1 {
			t.Errorf("%d watch the key", len(k.watching))
		}
		cancel()
		<-behind
		second.Leave()
		time.Sleep(time.Hour)
		if most := int(time.Hour/(heartbeat-heartbeat/20)) + 4; k.asked() > most {
			t.Errorf("asked %d times in an hour, want %d at most", k.asked(), most)
		}
		start := time.Now()
		k.release(true)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 4*travel {
			t.Errorf("it came after %v", took)
		}
		p.Leave()
		settle()
	})
}

// The arbiter goes down, is slow, and comes back: the next keeps the queue with
// the tickets that were drawn, and it goes back.
func TestArbiterChanges(t *testing.T) {
	t.Parallel()
	for what, trouble := range map[string]func(k *node){
		"down": func(k *node) { k.down = true },
		"slow": func(k *node) { k.slow = 2 * timeout },
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			for _, k := range nodes {
				k.set(func(k *node) { k.holder = "ours" })
			}
			k := arbiter(t, nodes)
			var tickets []*Ticket
			var outs []<-chan error
			for i := range 4 {
				p := newQueue(t, fmt.Sprint("p", i), nodes, nil).join(key, false)
				tickets, outs = append(tickets, p), append(outs, awaiting(t.Context(), p, 0))
				settle()
			}
			order := k.order()
			k.set(trouble)
			time.Sleep(2 * heartbeat)
			synctest.Wait()
			second := nodes[newQueue(t, "scout", nodes, nil).Order(key)[1]]
			if got := second.order(); !slices.Equal(got, order) {
				t.Errorf("%s: the next node's queue is %v, was %v", what, got, order)
			}
			k.set(func(k *node) { k.down, k.slow = false, 0 })
			time.Sleep(2 * heartbeat)
			synctest.Wait()
			if got := k.order(); !slices.Equal(got, order) {
				t.Errorf("%s: when it is back its queue is %v, was %v", what, got, order)
			}
			if got := second.order(); len(got) > 0 {
				t.Errorf("%s: the next node's queue is still %v", what, got)
			}
			for i, p := range tickets {
				k.release(false)
				if err := <-outs[i]; err != nil {
					t.Error(err)
				}
				p.Leave()
				settle()
				k.set(func(k *node) { k.holder = "ours" })
			}
		})
	}
}

// No node keeps the queue: Await says so at once, each time that it is asked, and
// ctx ends it.
func TestNoArbiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, k := range nodes {
			k.set(func(k *node) { k.down = true })
		}
		p := newQueue(t, "p", nodes, nil).join(key, false)
		if err := p.Await(t.Context(), 0, quiet); !errors.Is(err, errNoQueue) {
			t.Errorf("%v", err)
		}
		cause := errors.New("the caller's")
		ctx, cancel := context.WithCancelCause(t.Context())
		out := awaiting(ctx, p, time.Hour)
		settle()
		cancel(cause)
		if err := <-out; !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
		p.Leave()
	})
}

// One who leaves, whenever that is, is in no queue afterwards, and is not waited
// for by those behind it.
func TestLeave(t *testing.T) {
	t.Parallel()
	for after := range 12 {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			k := arbiter(t, nodes)
			k.set(func(k *node) { k.holder = "ours" })
			ctx, cancel := context.WithCancel(t.Context())
			one, two := newQueue(t, "one", nodes, nil).join(key, false), newQueue(t, "two", nodes, nil).join(key, false)
			first := awaiting(ctx, one, 0)
			time.Sleep(travel / 4)
			second := awaiting(t.Context(), two, 0)
			time.AfterFunc(4*travel, func() { k.release(false) })
			time.Sleep(time.Duration(after) * travel / 2)
			cancel()
			<-first
			one.Leave()
			start := time.Now()
			if err := <-second; err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 10*travel {
				t.Errorf("left after %v: the next came %v later", time.Duration(after)*travel/2, took)
			}
			two.Leave()
			settle()
			if got := k.order(); len(got) > 0 {
				t.Errorf("left after %v: %v", time.Duration(after)*travel/2, got)
			}
		})
	}
}

// One who leaves before it knows of its ticket is out of the queue all the same,
// while the key is held.
func TestLeaveWhileJoining(t *testing.T) {
	t.Parallel()
	for after := 1; after < 9; after++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			k := arbiter(t, nodes)
			k.set(func(k *node) { k.holder = "ours" })
			ctx, cancel := context.WithCancel(t.Context())
			p := newQueue(t, "p", nodes, nil).join(key, false)
			out := awaiting(ctx, p, 0)
			time.Sleep(time.Duration(after) * travel / 2)
			cancel()
			<-out
			p.Leave()
			settle()
			if got := k.order(); len(got) > 0 {
				t.Errorf("left after %v: %v", time.Duration(after)*travel/2, got)
			}
		})
	}
}

// answering is a node whose caller leaves as it is answered that keys were left to it.
type answering struct {
	Node
	leave func()
}

func (n answering) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	p := n.Node.Enqueue(ctx, r)
	if p.From != "" {
		n.leave()
	}
	return p
}

// What a holder left on other nodes is told to the one who is woken up, by the message
// and by the answer, and forgone by one who leaves.
func TestLeftToTheFirst(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"woken up", "looks", "leaves", "leaves before it knows", "leaves, and is told after its wait", "leaves while it asks again", "leaves as it is answered", "is forgotten"} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			k := arbiter(t, nodes)
			k.set(func(k *node) { k.holder, k.mute = "ours", way == "looks" || way == "leaves as it is answered" })
			q := newQueue(t, "p", nodes, nil)
			p := q.join(key, false)
			ctx, cancel := context.WithCancel(t.Context())
			if i := q.Arbiter(key); way == "leaves as it is answered" {
				q.nodes[i] = answering{q.nodes[i], cancel}
			}
			out := awaiting(ctx, p, 0)
			settle()
			k.set(func(k *node) { k.from = "before" })
			switch way {
			case "is forgotten":
				p.forget()
			case "leaves, and is told after its wait", "leaves while it asks again":
				cancel()
			}
			synctest.Wait()
			k.release(false)
			if way == "leaves before it knows" {
				time.Sleep(travel / 2)
				cancel()
			}
			if way == "is forgotten" || way == "leaves, and is told after its wait" {
				settle()
				cancel()
			}
			<-out
			switch way {
			case "leaves while it asks again":
				settle()
				asks, leave := context.WithCancel(t.Context())
				out = awaiting(asks, p, 0)
				synctest.Wait()
				leave()
				<-out
				p.Leave()
			case "woken up", "looks":
				if got := p.Attempt(request).From; got != "before" {
					t.Errorf("%s: it is left to it by %q", way, got)
				}
				k.take("ours", p.waiter, 0)
				takenByGrant(p)
			default:
				p.Leave()
			}
			settle()
			var want []string
			if strings.HasPrefix(way, "leaves") || way == "is forgotten" {
				want = []string{"x of before"}
			}
			if !slices.Equal(k.forgone, want) {
				t.Errorf("%s: forgone: %q, want %q", way, k.forgone, want)
			}
			cancel()
		})
	}
}

// takenByGrant ends the place of a process that has the lock, by a grant of the arbiter too.
func takenByGrant(t *Ticket) {
	t.Taken()
	t.Heard(vote.Answer{Verdict: vote.Granted})
}
