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

// turn is a step by which a waiter, or one who did not wait, takes what is free.
type turn func(n readersNode, waiter vote.Ticket) vote.Answer

// turns are the steps, by what they take.
func turns() map[string]turn {
	acquire := func(n readersNode, r vote.Acquire) vote.Answer {
		r.Key, r.ID, r.TTL, r.Proposed = n.key, "mine", time.Minute, uint64(time.Now().UnixMicro())
		return n.node.Acquire(n.Context(), r)
	}
	choose := func(slots uint16) turn {
		return func(n readersNode, w vote.Ticket) vote.Answer {
			return n.node.Choose(n.Context(), vote.Acquire{Key: n.key, ID: "mine", TTL: time.Minute, Proposed: uint64(time.Now().UnixMicro()), Slots: slots, Ticket: w})
		}
	}
	return map[string]turn{
		"a lock": func(n readersNode, w vote.Ticket) vote.Answer { return acquire(n, vote.Acquire{Ticket: w}) },
		"several names": func(n readersNode, w vote.Ticket) vote.Answer {
			return acquire(n, vote.Acquire{Ticket: w, With: &vote.Keys{n.key + "/also"}})
		},
		"a reader": func(n readersNode, w vote.Ticket) vote.Answer {
			return acquire(n, vote.Acquire{Ticket: w, Shared: true})
		},
		"a permit":        choose(2),
		"the last permit": choose(1),
	}
}

// eachTurn runs a test for each kind of step on one server. The key is that whose queue it is; another
// permit may be free.
func eachTurn(t *testing.T, test func(n readersNode, waiter string, take turn, another bool)) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		for kind, take := range turns() {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				n, waiter := newReadersNode(t, server), "/1"
				switch kind {
				case "a reader":
					waiter = vote.Reader + "/1"
				case "a permit", "the last permit":
					n.key = locktest.PermitsKey(n.key)
				}
				test(n, waiter, take, kind == "a permit")
			})
		}
	})
}

// wokenUp writes that a waiter was woken up, until that time. Of readers no one is named.
func (n readersNode) wokenUp(waiter string, until time.Time) {
	n.Helper()
	if strings.HasPrefix(waiter, vote.Reader) {
		waiter = vote.Reader
	}
	locktest.Do(n.T, n.server, "SET", node.NextKey(n.key), fmt.Sprintf("%s %d ", waiter, until.UnixMilli()))
}

// A waiter whose turn it is takes what it waited for, though the keys of the wait queue are of another type, and
// leaves none of them behind: nobody else waits.
func TestTurnBesideKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	eachTurn(t, func(n readersNode, waiter string, take turn, _ bool) {
		n.wokenUp(waiter, locktest.ServerTime(n.T, n.server).Add(time.Minute))
		queue := node.SideKeys(n.key)[2:4]
		locktest.Do(n.T, n.server, "SET", queue[0], "x")
		locktest.Do(n.T, n.server, "RPUSH", queue[1], "x")
		if a := take(n, vote.Ticket{Waiter: waiter}); a.Verdict != vote.Granted || a.Waiting {
			n.Errorf("%v, others wait: %t, %v", a.Verdict, a.Waiting, a.Err)
		}
		for _, key := range append(queue, node.NextKey(n.key)) {
			if kind := locktest.Do(n.T, n.server, "TYPE", key); kind != "none" {
				n.Errorf("%q is left, a %v", key, kind)
			}
		}
	})
}

// Whoever takes what it was woken up for leaves the queue, and next says who is the first now. One who hears no
// messages is not named, unless it was woken up: another permit is free.
func TestTurnGoesToTheNext(t *testing.T) {
	t.Parallel()
	eachTurn(t, func(n readersNode, waiter string, take turn, another bool) {
		const deaf = "-/2"
		now := locktest.ServerTime(n.T, n.server)
		n.wokenUp(waiter, now.Add(time.Minute))
		queue := node.SideKeys(n.key)[2:4]
		soon := fmt.Sprint(now.Add(script.Patience).UnixMilli())
		locktest.Do(n.T, n.server, "ZADD", queue[0], "1", waiter, "2", deaf)
		locktest.Do(n.T, n.server, "ZADD", queue[1], soon, waiter, soon, deaf)
		a := take(n, vote.Ticket{Waiter: waiter})
		if locktest.ServerTime(n.T, n.server).Sub(now) >= script.Patience {
			n.Skip("the machine was so late that both have lost their places")
		}
		if a.Verdict != vote.Granted || !a.Waiting {
			n.Errorf("%v, others wait: %t, %v", a.Verdict, a.Waiting, a.Err)
		}
		for _, key := range queue {
			if left := locktest.Do(n.T, n.server, "ZRANGE", key, "0", "-1"); fmt.Sprint(left) != "["+deaf+"]" {
				n.Errorf("%q has %v", key, left)
			}
		}
		woken, _, _ := strings.Cut(locktest.Value(n.T, n.server, node.NextKey(n.key)), " ")
		want := "-"
		if another {
			want = deaf
		}
		if woken != want {
			n.Errorf("next says %q, not %q", woken, want)
		}
	})
}

// Nobody is waited for who was woken up, as it seems, for longer than anybody is, or whose time is over.
func TestTurnThatIsNone(t *testing.T) {
	t.Parallel()
	for what, left := range map[string]time.Duration{"over": -time.Second, "too long": time.Minute} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachTurn(t, func(n readersNode, _ string, take turn, _ bool) {
				n.wokenUp("nobody/1", locktest.ServerTime(n.T, n.server).Add(left))
				if a := take(n, vote.Ticket{}); a.Verdict != vote.Granted {
					n.Errorf("%v, held by %q for %v, %v", a.Verdict, a.Holder, a.Left, a.Err)
				}
			})
		})
	}
}
