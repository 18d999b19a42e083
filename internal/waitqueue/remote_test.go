package waitqueue

import (
	"context"
	"fmt"
	"strings"
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
	for name, want := range map[string]bool{"nobody": false, "the first node keeps the queue": true, "the last node keeps the queue": true, "no node answers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(3)
				q := newQueue(t, "p", nodes, nil)
				first, last := nodes[q.Order(key)[0]], nodes[q.Order(key)[2]]
				switch name {
				case "the first node keeps the queue":
					first.set(func(k *node) { k.queue["another/1"] = 1 })
				case "the last node keeps the queue":
					last.set(func(k *node) { k.queue["another/1"] = 1 })
				case "no node answers":
					for _, n := range nodes {
						n.set(func(k *node) { k.down = true })
					}
				}
				told := 0
				q.look(key, func(somebody bool) {
					told++
					if somebody != want {
						t.Errorf("somebody waits: %t", somebody)
					}
				})
				settle()
				if told != 1 || name == "the first node keeps the queue" && last.looked > 0 {
					t.Errorf("told %d times; the last node was asked %d times", told, last.looked)
				}
			})
		})
	}
}

// Others that were seen to wait are believed to for a while: a caller joins them. So it does where readers of its own process
// wait, but these do not wait for each other.
func TestOthersSeenWaiting(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		seen func(q *Queue)
		want bool
	}{
		"nobody was seen":     {func(*Queue) {}, false},
		"they were":           {func(q *Queue) { q.MarkContended(key) }, true},
		"just in time":        {func(q *Queue) { q.MarkContended(key); time.Sleep(contendedTime - 1) }, true},
		"long ago":            {func(q *Queue) { q.MarkContended(key); time.Sleep(contendedTime) }, false},
		"they have gone":      {func(q *Queue) { q.MarkContended(key); q.clearContended(key) }, false},
		"for another":         {func(q *Queue) { q.MarkContended("y") }, false},
		"a reader waits":      {func(q *Queue) { q.join(key, true) }, true},
		"a reader of another": {func(q *Queue) { q.join("y", true) }, false},
		"a writer waits":      {func(q *Queue) { q.join(key, false) }, false},
		"by many": {func(q *Queue) {
			for i := range maxContended {
				q.MarkContended(fmt.Sprint(i))
			}
			q.MarkContended(key)
			if len(q.contended) > maxContended {
				panic("unbounded")
			}
		}, true},
		"before many": {func(q *Queue) {
			q.MarkContended(key)
			for i := range maxContended - 1 {
				q.MarkContended(fmt.Sprint(i))
			}
		}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, "p", newNodes(1), nil)
			c.seen(q)
			if got := q.hasRemoteWaiters(&local{key: key}); got != c.want {
				t.Errorf("%s: it joins them: %t", what, got)
			}
			if readers := strings.HasPrefix(what, "a reader"); q.hasRemoteWaiters(&local{key: key, shared: true}) != (c.want && !readers) {
				t.Errorf("%s: a reader joins them: %t", what, !c.want || readers)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		l, _ := q.enter(wanting{})
		q.MarkContended(key)
		time.Sleep(2 * contendedTime)
		if !l.remote || !q.hasRemoteWaiters(l) {
			t.Error("the caller that has the key here does not know of those who waited meanwhile")
		}
	})
}

// Who is the first in the queue, and is to take a free key, forgets that others were seen waiting for it; who is behind
// another does not.
func TestOthersAreForgottenByTheFirst(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(1)
			if behind {
				other := newQueue(t, "other", nodes, nil).join(key, false)
				if err := other.Await(t.Context(), 0, quiet); err != nil {
					t.Fatal(err)
				}
				defer other.Leave()
			}
			q := newQueue(t, "p", nodes, nil)
			q.options.Life = t.Context()
			q.MarkContended(key)
			ctx, cancel := context.WithTimeout(t.Context(), 10*travel)
			defer cancel()
			c := &trying{try: func(int) Failure { return Failure{Err: errOver, Final: true} }}
			if err := q.Wait(ctx, c); err != errOver {
				t.Error(err)
			}
			if _, seen := q.contended[key]; seen != behind {
				t.Errorf("behind another: %t; others were seen: %t", behind, seen)
			}
		})
	}
}

// A process that has handed a key over inside itself often enough asks, once, whether others wait. Where nobody does, or the
// node that keeps the queue has said so, it counts anew.
func TestAskedAfterManyHandovers(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		handed        int
		remote, waits bool
		looked, left  int
	}{
		"not yet":              {handed: maxUnheard - 1, left: maxUnheard - 1},
		"nobody waits":         {handed: maxUnheard, looked: 1},
		"somebody does":        {handed: maxUnheard, waits: true, looked: 1, left: maxUnheard},
		"somebody is known to": {handed: maxUnheard, remote: true, left: maxUnheard},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(1)
			q := newQueue(t, "p", nodes, nil)
			if c.waits {
				nodes[0].set(func(k *node) { k.queue["another/1"] = 1 })
			}
			l := &local{key: key, handed: c.handed, remote: c.remote}
			for range 3 {
				q.ask(l)
			}
			settle()
			if nodes[0].looked != c.looked || l.handed != c.left || l.remote != (c.remote || c.waits) || l.asking {
				t.Errorf("%s: asked %d times: %+v", what, nodes[0].looked, l)
			}
			if q.asked(l, false); l.remote != (c.remote || c.waits) {
				t.Errorf("%s: an answer that nobody waits is believed rather than what was seen meanwhile", what)
			}
			l.handed = maxUnheard
			q.heard(l)
			if anew := l.handed == 0; anew == l.remote {
				t.Errorf("%s: the node was heard, and it counts anew: %t", what, anew)
			}
			l.handed = maxUnheard
			q.ask(l)
			settle()
			if want := c.looked + 1; !l.remote && nodes[0].looked != want {
				t.Errorf("%s: it asks no second time", what)
			}
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
