package locking

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// queued has waiters wait in this order, while next says said. It returns when they lose their places.
func (n readersNode) queued(said string, waiters ...string) (lapse time.Time) {
	n.Helper()
	queue := node.SideKeys(n.key)[2:4]
	lapse = locktest.ServerTime(n.T, n.server).Add(script.Patience)
	soon := fmt.Sprint(lapse.UnixMilli())
	for i, waiter := range waiters {
		locktest.Do(n.T, n.server, "ZADD", queue[0], fmt.Sprint(i+1), waiter)
		locktest.Do(n.T, n.server, "ZADD", queue[1], soon, waiter)
	}
	locktest.Do(n.T, n.server, "SET", node.NextKey(n.key), said)
	return lapse
}

// next expects that next says this, apart from the time until which somebody was woken up. A machine so busy that those
// who waited have lost their places shows nothing.
func (n readersNode) next(want string, lapse time.Time) {
	n.Helper()
	said, _, _ := strings.Cut(locktest.Value(n.T, n.server, node.NextKey(n.key)), " ")
	if said != want && locktest.ServerTime(n.T, n.server).Before(lapse) {
		n.Errorf("next says %q, not %q", said, want)
	}
}

// leaves gives up a waiter's place, or changes it.
func (n readersNode) leaves(waiter string, number uint64, shared bool) {
	n.node.Release(n.Context(), vote.Release{Key: n.key, ID: waiter, Shared: shared, Ticket: vote.Ticket{Waiter: waiter, Number: number}})
}

// Whom the release by a reader wakes up: a writer when the last reader leaves, and readers who wait before it already
// when the first does.
func TestReaderIsReleased(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		waiters     []string
		first, last string // what next says when the first reader has left, and the last
	}{
		"a writer": {[]string{"-/1"}, "-", "-/1"},
		"readers":  {[]string{"-+-/1", "-/2"}, "-+", "-+"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newReadersNode(t, locktest.Shared(t, 1)[0])
			n.acquire("a", true, time.Minute)
			n.acquire("b", true, time.Minute)
			lapse := n.queued("-", c.waiters...)
			turn := locktest.ServerTime(t, n.server).Add(script.Grace)
			n.is("a", n.release("a", true), vote.Granted)
			n.next(c.first, lapse)
			if c.first != "-" { // whose turn may be over by then
				lapse = turn
			}
			n.is("b", n.release("b", true), vote.Granted)
			n.next(c.last, lapse)
		})
	}
}

// The release by a writer wakes up who is first, and tells it whose keys elsewhere are left to it. A waiter that leaves while the key is free
// passes its turn on.
func TestWriterIsReleased(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		value, said string
		release     func(n readersNode)
		next, from  string
	}{
		"who has it": {"mine", "-", func(n readersNode) {
			n.node.Release(n.Context(), vote.Release{Key: n.key, ID: "mine", Transfer: true})
		}, "-/1", "mine"},
		"who was woken up leaves":             {"", "-/1 9999999999999 ", func(n readersNode) { n.leaves("-/1", 0, false) }, "-/2", ""},
		"who was woken up leaves, a reader":   {"", "-/1 9999999999999 ", func(n readersNode) { n.leaves("-/1", 0, true) }, "-/2", ""},
		"another has it":                      {"theirs", "-", func(n readersNode) { n.leaves("-/1", 0, false) }, "-", ""},
		"another has it, and a reader leaves": {"theirs", "-", func(n readersNode) { n.leaves("-/1", 0, true) }, "-", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newReadersNode(t, locktest.Shared(t, 1)[0])
			if c.value != "" {
				locktest.Do(t, n.server, "SET", n.key, c.value)
			}
			lapse := n.queued(c.said, "-/1", "-/2")
			c.release(n)
			n.next(c.next, lapse)
			if said := strings.Split(locktest.Value(t, n.server, node.NextKey(n.key)), " "); len(said) > 2 && said[2] != c.from {
				t.Errorf("next says %q, not from %q", said, c.from)
			}
		})
	}
}

// A place in the queue is changed and given up by a release of nothing, of a writer's, a reader's or a permit's waiter.
func TestPlaceIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"a writer's", "a reader's", "a permit's"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newReadersNode(t, locktest.Shared(t, 1)[0])
			if what == "a permit's" {
				n.key = locktest.PermitsKey(n.key)
			}
			for _, number := range []uint64{7, 0} {
				n.leaves("-+-/1", number, what == "a reader's")
				want := map[bool]string{true: "[-+-/1 7]", false: "[]"}[number > 0]
				if places := fmt.Sprint(locktest.Do(n.T, n.server, "ZRANGE", node.SideKeys(n.key)[2], "0", "-1", "WITHSCORES")); places != want {
					n.Errorf("the queue has %s, not %s", places, want)
				}
			}
		})
	}
}

// The release of a permit wakes up the next waiter; so does a waiter whose turn it was, and no other, when it leaves. Where it is not known
// which permit a holder has, it is found.
func TestPermitIsReleased(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		said    string
		release func(n readersNode, slot string) vote.Verdict
		granted bool
		next    string
	}{
		"its slot": {"-", func(n readersNode, slot string) vote.Verdict {
			return n.node.Release(n.Context(), vote.Release{Key: slot, ID: "mine"}).Verdict
		}, true, "-/1"},
		"any slot": {"-", func(n readersNode, _ string) vote.Verdict {
			return n.node.Release(n.Context(), vote.Release{Key: n.key, ID: "mine"}).Verdict
		}, true, "-/1"},
		"by another": {"-", func(n readersNode, slot string) vote.Verdict {
			return n.node.Release(n.Context(), vote.Release{Key: slot, ID: "min"}).Verdict
		}, false, "-"},
		"who was woken up leaves": {"-/1 9999999999999 ", func(n readersNode, _ string) vote.Verdict { n.leaves("-/1", 0, false); return vote.NotOurs }, false, "-/2"},
		"who was not leaves":      {"-", func(n readersNode, _ string) vote.Verdict { n.leaves("-/1", 0, false); return vote.NotOurs }, false, "-"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newReadersNode(t, locktest.Shared(t, 1)[0])
			queue := locktest.PermitsKey(n.key)
			slot := locktest.SlotKey(n.key, 0)
			n.key = queue
			a := n.node.Choose(n.Context(), vote.Acquire{Key: queue, ID: "mine", TTL: time.Minute, Proposed: uint64(time.Now().UnixMicro()), Slots: 1})
			n.is("chosen", a.Verdict, vote.Granted)
			lapse := n.queued(c.said, "-/1", "-/2")
			if v := c.release(n, slot); (v == vote.Granted) != c.granted {
				n.Errorf("released: %v", v)
			}
			if v := locktest.Value(n.T, n.server, slot); (v == "") != c.granted {
				n.Errorf("the slot has %q", v)
			}
			n.next(c.next, lapse)
		})
	}
}

// A permit is not taken while another was woken up to take one, but by who barges in. Nor is it while somebody wrote so of the
// slot alone, for which nobody waits.
func TestPermitOfAnothersTurn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ slot, barges, granted bool }{
		"another's":                {},
		"another's, by who barges": {barges: true, granted: true},
		"the slot is kept":         {slot: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newReadersNode(t, locktest.Shared(t, 1)[0])
			kept := locktest.PermitsKey(n.key)
			if c.slot {
				kept = locktest.SlotKey(n.key, 0)
			}
			n.key = locktest.PermitsKey(n.key)
			locktest.Await(t, "it is in time", func() bool {
				until := locktest.ServerTime(t, n.server).Add(script.Grace - time.Millisecond)
				locktest.Do(t, n.server, "SET", node.NextKey(kept), fmt.Sprintf("nobody/1 %d ", until.UnixMilli()))
				a := n.node.Choose(n.Context(), vote.Acquire{
					Key: n.key, ID: "mine", TTL: time.Minute, Proposed: uint64(time.Now().UnixMicro()), Slots: 1, Barge: c.barges,
				})
				if a.Verdict == vote.Granted && !c.granted && !locktest.ServerTime(t, n.server).Before(until) {
					n.release("mine", false) // a busy machine's
					return false
				}
				if a.Verdict == vote.Granted != c.granted || !c.granted && !a.Reserved() {
					t.Errorf("%v, reserved: %t, %v", a.Verdict, a.Reserved(), a.Err)
				}
				return true
			})
		})
	}
}

// While readers who were woken up have not all come, a writer behind them leaves: then the readers behind the writer are
// woken up, too. None of those who were first tells them later.
func TestWriterLeavesBetweenReaders(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("readers have it: %t", shared), func(t *testing.T) {
			t.Parallel()
			n := newReadersNode(t, locktest.Shared(t, 1)[0])
			calls, err := n.server.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer calls.Close()
			client := strings.ReplaceAll(t.Name(), "/", "_")
			if _, err := calls.Do("SUBSCRIBE", "redlatch:wake:"+client); err != nil {
				t.Fatal(err)
			}
			if shared {
				n.acquire("a", true, time.Minute)
			}
			locktest.Await(t, "it is in time", func() bool {
				until := locktest.ServerTime(t, n.server).Add(script.Grace - time.Millisecond)
				lapse := n.queued(fmt.Sprintf("-+ %d before", until.UnixMilli()), "-+-/1", "-/2", "-+"+client+"/3", "-/4")
				n.leaves("-/2", 0, false)
				n.next("-+", lapse)
				return locktest.ServerTime(t, n.server).Before(until)
			})
			// What is published later comes later.
			locktest.Do(t, n.server, "PUBLISH", "redlatch:wake:"+client, "nothing")
			push, err := calls.Receive()
			if err != nil {
				t.Fatal(err)
			}
			fields := push.([]any)
			if message, want := fields[len(fields)-1], fmt.Sprintf("-+%s/3 6 before%s", client, n.key); message != want {
				t.Errorf("the reader behind the writer is told %q, not %q", message, want)
			}
		})
	}
}

// A waiter that was woken up and asks is told that it is its turn, also where another with an earlier ticket has come since:
// that one is not woken up, and neither would take the key.
func TestTurnBehindAnEarlierTicket(t *testing.T) {
	t.Parallel()
	for _, slots := range []uint16{0, 1} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			t.Parallel()
			n := newReadersNode(t, locktest.Shared(t, 1)[0])
			if slots > 0 {
				n.key = locktest.PermitsKey(n.key)
			}
			client := strings.ReplaceAll(t.Name(), "/", "_")
			locktest.Await(t, "it is in time", func() bool {
				until := locktest.ServerTime(t, n.server).Add(script.Grace - time.Millisecond)
				n.queued(fmt.Sprintf("%s/2 %d ", client, until.UnixMilli()), client+"/1", client+"/2")
				ahead := make(map[int]int)
				for i := 1; i <= 2; i++ {
					p := n.node.Enqueue(n.Context(), vote.Enqueue{Key: n.key, Slots: slots, Ticket: vote.Ticket{Waiter: fmt.Sprintf("%s/%d", client, i), Number: uint64(i)}})
					if !p.Reserved() {
						t.Fatalf("%+v", p)
					}
					ahead[i] = p.Ahead
				}
				if !locktest.ServerTime(t, n.server).Before(until) {
					return false
				}
				if ahead[1] != 1 || ahead[2] != 0 {
					t.Errorf("before the one that was woken up are %d, before the other %d", ahead[2], ahead[1])
				}
				return true
			})
		})
	}
}
