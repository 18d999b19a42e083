package locking

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// severalNode is one server and the keys of two names that are locked at once, whose steps a test does one by one.
type severalNode struct {
	readersNode
	keys [2]string
	with vote.Keys
}

func (n severalNode) request() vote.Acquire {
	return vote.Acquire{Key: n.key, With: &n.with, ID: "mine", TTL: time.Minute, Proposed: uint64(time.Now().UnixMicro())}
}

func (n severalNode) take(r vote.Acquire) vote.Answer { return n.node.Acquire(n.Context(), r) }

func (n severalNode) letGo(id string, waiter vote.Ticket) vote.Answer {
	return n.node.Release(n.Context(), vote.Release{Key: n.key, With: &n.with, ID: id, TTL: time.Minute, Ticket: waiter})
}

func eachSeveral(t *testing.T, tests map[string]func(n severalNode)) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		for what, test := range tests {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				n := severalNode{readersNode: newReadersNode(t, server)}
				n.keys = [2]string{n.key, n.key + "/also"}
				n.with = n.keys[1:]
				test(n)
			})
		}
	})
}

// What is in the way of one of several names is in the way of all: the answer says which it is.
func TestSeveralInTheWay(t *testing.T) {
	t.Parallel()
	held := func(n severalNode, r vote.Acquire, holder string, which uint8) {
		n.Helper()
		if a := n.take(r); a.Verdict != vote.Held || a.Holder != holder || a.Which != which {
			n.Errorf("%v: %q has the key %d; want %q, %d", a.Verdict, a.Holder, a.Which, holder, which)
		}
	}
	tests := map[string]func(n severalNode){
		"each is taken from the holder who transfers it": func(n severalNode) {
			r := n.request()
			r.From, r.Froms = "w0", &[]string{"w1"}
			locktest.Do(n.T, n.server, "SET", n.keys[0], "w0")
			locktest.Do(n.T, n.server, "SET", n.keys[1], "w0")
			held(n, r, "w0", 1)
			locktest.Do(n.T, n.server, "SET", n.keys[1], "w1")
			if a := n.take(r); a.Verdict != vote.Granted || !a.Transferred {
				n.Errorf("%v, transferred: %t", a.Verdict, a.Transferred)
			}
		},
		"an empty value is another's": func(n severalNode) {
			for i, key := range n.keys {
				r := n.request()
				r.Froms = &[]string{""}
				locktest.Do(n.T, n.server, "SET", key, "")
				held(n, r, "", uint8(i))
				locktest.Do(n.T, n.server, "DEL", key)
			}
		},
		"none is extended where one has gone": func(n severalNode) {
			for _, key := range n.keys {
				n.take(n.request())
				locktest.Do(n.T, n.server, "DEL", key)
				r := vote.Extend{Key: n.key, With: &n.with, ID: "mine", TTL: time.Hour, Token: 1}
				n.is(key, n.node.Extend(n.Context(), r).Verdict, vote.NotOurs)
				for _, other := range n.keys {
					if left := locktest.Remaining(n.T, n.server, other); left > time.Minute {
						n.Errorf("%q has %v left", other, left)
					}
					locktest.Do(n.T, n.server, "DEL", other)
				}
			}
		},
		"a repeat tells whether others wait": func(n severalNode) {
			n.take(n.request())
			lapse := n.enqueue("/1")
			if a := n.take(n.request()); a.Verdict != vote.Granted || !a.Waiting && locktest.ServerTime(n.T, n.server).Before(lapse) {
				n.Errorf("%v, others wait: %t", a.Verdict, a.Waiting)
			}
		},
	}
	for what, lose := range map[string]func(n severalNode){
		"the first":  func(n severalNode) { locktest.Do(n.T, n.server, "DEL", n.keys[0]) },
		"the second": func(n severalNode) { locktest.Do(n.T, n.server, "DEL", n.keys[1]) },
		"the counters": func(n severalNode) {
			locktest.Do(n.T, n.server, "DEL", node.CounterKey(n.keys[0]), node.CounterKey(n.keys[1]))
		},
		"one counter, which is larger": func(n severalNode) { locktest.Do(n.T, n.server, "INCR", node.CounterKey(n.keys[1])) },
	} {
		tests["a repeat where something has gone: "+what] = func(n severalNode) {
			n.take(n.request())
			lose(n)
			if a := n.take(n.request()); a.Verdict != vote.Held || a.Holder != "mine" {
				n.Errorf("%v, held by %q", a.Verdict, a.Holder)
			}
		}
	}
	eachSeveral(t, tests)
}

// Who was woken up to take one of several names keeps the others out, but for one that came before it, or may barge in.
func TestSeveralOfAnothersTurn(t *testing.T) {
	t.Parallel()
	const ticket = 10 // that of who was woken up
	barges := func(r *vote.Acquire) { r.Barge = true }
	came := func(number uint64) func(*vote.Acquire) {
		return func(r *vote.Acquire) { r.Ticket = vote.Ticket{Waiter: "mine/1", Number: number} }
	}
	tests := make(map[string]func(n severalNode))
	for what, c := range map[string]struct {
		of      int // the name that somebody was woken up for
		request func(*vote.Acquire)
		from    bool // somebody transfers the second name
		queue   func(n severalNode, queue string)
		granted bool
	}{
		"the first":                                          {of: 0, request: came(ticket - 1)},
		"the first, by who barges":                           {of: 0, request: barges, granted: true},
		"the second":                                         {of: 1, request: came(ticket + 1)},
		"the second, by who came before":                     {of: 1, request: came(ticket - 1), granted: true},
		"the second, in the place that was left":             {of: 1, request: came(ticket), granted: true},
		"the second, without a ticket":                       {of: 1, request: came(0)},
		"the second, by who barges":                          {of: 1, request: barges},
		"the second, by who barges into what is transferred": {of: 1, request: barges, from: true, granted: true},
		"the second, by one of that name":                    {of: 1, request: func(r *vote.Acquire) { r.Ticket.Waiter = "woken/1" }},
		"the second, of one without a place": {of: 1, request: came(ticket - 1), queue: func(n severalNode, queue string) {
			locktest.Do(n.T, n.server, "DEL", queue)
		}},
		"the second, with a queue of another type": {of: 1, request: came(ticket - 1), queue: func(n severalNode, queue string) {
			locktest.Do(n.T, n.server, "DEL", queue)
			locktest.Do(n.T, n.server, "SET", queue, "x")
		}},
	} {
		tests[what] = func(n severalNode) {
			r := n.request()
			c.request(&r)
			key := n.keys[c.of]
			queue := node.SideKeys(key)[2]
			locktest.Do(n.T, n.server, "ZADD", queue, strconv.Itoa(ticket), "woken/1")
			if c.queue != nil {
				c.queue(n, queue)
			}
			if c.from {
				locktest.Do(n.T, n.server, "SET", key, "w1")
				r.Froms = &[]string{"w1"}
			}
			locktest.Await(n.T, "it is in time", func() bool {
				until := locktest.ServerTime(n.T, n.server).Add(script.Grace - time.Millisecond)
				locktest.Do(n.T, n.server, "SET", node.NextKey(key), fmt.Sprintf("woken/1 %d ", until.UnixMilli()))
				a := n.take(r)
				if a.Verdict == vote.Granted && !c.granted && !locktest.ServerTime(n.T, n.server).Before(until) {
					n.letGo(r.ID, vote.Ticket{}) // a busy machine's
					return false
				}
				if a.Verdict == vote.Granted != c.granted || !c.granted && (!a.Reserved() || int(a.Which) != c.of) {
					n.Errorf("%v, reserved: %t, name %d, %v", a.Verdict, a.Reserved(), a.Which, a.Err)
				}
				return true
			})
		}
	}
	eachSeveral(t, tests)
}

// A release of several names wakes up who waits for any of them, unless another has that name.
func TestSeveralAreReleased(t *testing.T) {
	t.Parallel()
	tests := map[string]func(n severalNode){
		"it says who has the first that is another's": func(n severalNode) {
			locktest.Do(n.T, n.server, "MSET", n.keys[0], "x", n.keys[1], "y")
			if a := n.letGo("mine", vote.Ticket{}); a.Verdict != vote.Held || a.Holder != "x" {
				n.Errorf("%v, held by %q", a.Verdict, a.Holder)
			}
		},
		"a waiter is one for the first": func(n severalNode) {
			locktest.Do(n.T, n.server, "MSET", n.keys[0], "x", n.keys[1], "y")
			for _, number := range []uint64{5, 0} {
				n.letGo("mine", vote.Ticket{Waiter: "/1", Number: number})
				for i, key := range n.keys {
					queued := locktest.Do(n.T, n.server, "ZCARD", node.SideKeys(key)[2])
					if (queued == int64(1)) != (i == 0 && number > 0) {
						n.Errorf("ticket %d: %v wait for name %d", number, queued, i)
					}
				}
			}
		},
	}
	for i := range 2 {
		// of is the name for which one waits.
		of := func(n severalNode) readersNode {
			n.key = n.keys[i]
			return n.readersNode
		}
		tests[fmt.Sprintf("one waits for name %d", i)] = func(n severalNode) {
			n.take(n.request())
			lapse := of(n).enqueue("/1")
			if a := n.letGo("mine", vote.Ticket{}); a.Verdict != vote.Granted || !a.Woken && locktest.ServerTime(n.T, n.server).Before(lapse) {
				n.Errorf("%v, woken up: %t", a.Verdict, a.Woken)
			}
			of(n).next("/1", lapse)
		}
		tests[fmt.Sprintf("one waits for name %d, which is another's", i)] = func(n severalNode) {
			locktest.Do(n.T, n.server, "MSET", n.keys[0], "x", n.keys[1], "y")
			lapse := of(n).enqueue("/1")
			n.is("released", n.letGo("mine", vote.Ticket{}).Verdict, vote.Held)
			of(n).next("=/1", lapse)
		}
	}
	eachSeveral(t, tests)
}
