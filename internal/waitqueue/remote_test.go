package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Whether somebody waits is asked of all nodes, as any of them may keep the queue. If none can say, somebody does.
func TestLookForWaiters(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"nobody": false, "the last node keeps the queue": true, "no node answers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(3)
				q := newQueue(t, "p", nodes, nil)
				last := nodes[q.Order(key)[2]]
				switch name {
				case "the last node keeps the queue":
					last.set(func(k *node) { k.queue["another/1"] = 1 })
				case "no node answers":
					for _, n := range nodes {
						n.set(func(k *node) { k.down = true })
					}
				}
				q.look(key, func(somebody bool) {
					if somebody != want {
						t.Errorf("somebody waits: %t", somebody)
					}
				})
			})
		})
	}
}

// When the queue is closed nothing is sent any more, as the nodes are about to be.
func TestNothingIsSentAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, k := heldNode()
		k.set(func(k *node) { k.queue["p/old"] = 1 })
		q := newQueue(t, "p", nodes, nil)
		q.Close()
		q.Wake(0, vote.WakeUp{Key: key, Waiter: "p/old"})
		q.look(key, func(bool) { t.Error("a node was asked") })
		settle()
		if order := k.order(); len(order) != 1 {
			t.Error("a place was given up")
		}
	})
}

// says is a node that grants, and may say that others wait or be slow to say anything.
type says struct {
	granting
	waiting, slow bool
}

func (n *says) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	if n.slow {
		<-ctx.Done()
		return vote.Answer{}
	}
	a := n.granting.Acquire(ctx, r)
	a.Waiting = n.waiting
	return a
}

// A caller that took the key with a place in the queue believes that others wait for it unless the node that keeps the queue
// has granted it and says that nobody does. The place ends there with the grant, if the attempt was made with it, and is
// given up where no grant comes.
func TestTakenWithAPlace(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]bool{"nobody waits": false, "others wait": true, "no answer": true, "by another node": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(3)
				q := newQueue(t, "p", nodes, nil)
				l, _ := q.enter(wanting{})
				l.ticket = q.join(key, false)
				if err := l.ticket.Await(t.Context(), 0, quiet); err != nil {
					t.Fatal(err)
				}
				i := l.ticket.Arbiter()
				voters := []quorum.Voter{&says{}, &says{}, &says{}}
				voters[i] = &says{waiting: name == "others wait", slow: name == "no answer"}
				e := quorum.New(voters, clock.System, timeout)
				defer e.Close()
				attempt := vote.Acquire{Key: key, ID: "mine", TTL: 10 * time.Second, Proposed: 1}
				if name != "by another node" {
					attempt = l.ticket.Attempt(attempt)
				}
				lease, votes := e.Acquire(t.Context(), attempt)
				if lease == nil {
					t.Fatal(votes)
				}
				synctest.Wait()
				if got := q.won(l, lease); got != others {
					t.Errorf("others wait: %t", got)
				}
				time.Sleep(2 * timeout) // also the slow one is not waited for any more
				settle()
				nodes[i].set(func(k *node) {
					if left := len(k.order()) == 0; left != (name == "by another node" || name == "no answer") {
						t.Errorf("the place was given up by a command of its own: %t", left)
					}
				})
				if l.ticket != nil || q.tickets[key] != nil {
					t.Error("the ticket is there")
				}
			})
		})
	}
}
