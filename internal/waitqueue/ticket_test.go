package waitqueue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// The end of a ticket does not take away the one that the process has taken since (Queue.pass
// gives the queue up before it leaves the ticket).
func TestEndOfATicketIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		k := nodes[0]
		k.set(func(k *node) { k.holder = "ours" })
		q := newQueue(t, "one", nodes, nil)
		before := q.Join(key)
		p := q.Join(key)
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
			p := q.Join(key)
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
			p.Taken(answer)
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
