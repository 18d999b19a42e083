package locking

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// readersNode is one server and a lock's key on it, whose steps a test does one by one.
type readersNode struct {
	*testing.T
	server *redistest.Server
	node   *node.Node
	key    string
}

var readersNodes atomic.Int64

func newReadersNode(t *testing.T, s *redistest.Server) readersNode {
	t.Helper()
	conn, err := redisconn.New(redisconn.Options{Network: "tcp", Address: s.Addr(), ConnectTimeout: locktest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(conn, node.Options{
		Name: "n", Census: node.NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "steps", Nodes: []string{"n"}, MaxTTL: 3 * time.Minute, NoQuarantine: true},
		ConnectTimeout: locktest.Patience, Patience: locktest.Patience, Logger: slog.New(slog.DiscardHandler), Woken: func(vote.WakeUp) {},
	})
	t.Cleanup(n.Close)
	// Another run of the test finds nothing of this one.
	steps := readersNode{t, s, n, fmt.Sprintf("%s/%d", t.Name(), readersNodes.Add(1))}
	steps.extend("nobody", time.Second, 1) // the first vote admits the server, and no batch is tried again
	return steps
}

// acquire has id acquire the key, and returns its counter.
func (n readersNode) acquire(id string, reads bool, ttl time.Duration) uint64 {
	n.Helper()
	a := n.node.Acquire(n.Context(), vote.Acquire{Key: n.key, ID: id, TTL: ttl, Proposed: uint64(locktest.ServerTime(n.T, n.server).UnixMicro()), Shared: reads})
	if a.Verdict != vote.Granted {
		n.Fatalf("%s: %v, held by %q, %v", id, a.Verdict, a.Holder, a.Err)
	}
	return a.Counter
}

// try is acquire for a reader, whatever is answered.
func (n readersNode) try(id string) vote.Verdict {
	return n.node.Acquire(n.Context(), vote.Acquire{Key: n.key, ID: id, TTL: time.Minute, Proposed: uint64(time.Now().UnixMicro()), Shared: true}).Verdict
}

// enqueue has a writer wait for the key, which is held, and returns when it loses its place.
func (n readersNode) enqueue(waiter string) (lapse time.Time) {
	n.Helper()
	lapse = locktest.ServerTime(n.T, n.server).Add(script.Patience)
	if p := n.node.Enqueue(n.Context(), vote.Enqueue{Key: n.key, Ticket: vote.Ticket{Waiter: waiter}}); p.Err != nil || p.Reserved() {
		n.Fatalf("%s waits: %+v", waiter, p)
	}
	return lapse
}

func (n readersNode) release(id string, reads bool) vote.Verdict {
	return n.node.Release(n.Context(), vote.Release{Key: n.key, ID: id, TTL: time.Minute, Shared: reads}).Verdict
}

func (n readersNode) extend(id string, ttl time.Duration, token uint64) vote.Verdict {
	return n.node.Extend(n.Context(), vote.Extend{Key: n.key, ID: id, TTL: ttl, Token: token, Shared: true}).Verdict
}

func (n readersNode) repair(id string, token uint64) vote.Verdict {
	return n.node.Repair(n.Context(), vote.Extend{Key: n.key, ID: id, TTL: 20 * time.Second, Token: token, Shared: true}).Verdict
}

func (n readersNode) confirm(id string, granted, token uint64) vote.Verdict {
	return n.node.Confirm(n.Context(), vote.Confirm{Key: n.key, ID: id, Granted: granted, Token: token, Shared: true}).Verdict
}

func (n readersNode) is(what string, got, want vote.Verdict) {
	n.Helper()
	if got != want {
		n.Errorf("%s: %v, not %v", what, got, want)
	}
}

func (n readersNode) counter() uint64 {
	c, _ := strconv.ParseUint(locktest.Value(n.T, n.server, tokenKey(n.key)), 10, 64)
	return c
}

// The steps of readers on one server, in orders in which versions of them that look as good go wrong.
func TestReadersSteps(t *testing.T) {
	t.Parallel()
	const long, middle, short = 2 * time.Minute, time.Minute, 50 * time.Millisecond
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		each := func(what string, test func(n readersNode)) {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				test(newReadersNode(t, server))
			})
		}
		each("the first raises the counter, others do not", func(n readersNode) {
			w := n.acquire("w", false, long)
			n.is("released", n.release("w", false), vote.Granted)
			a := n.acquire("a", true, long)
			b := n.acquire("b", true, long)
			if a <= w || a != b || n.acquire("a", true, long) != a {
				n.Errorf("counters %d, %d, %d", w, a, b)
			}
			n.is("a", n.release("a", true), vote.Granted)
			n.is("b", n.release("b", true), vote.Granted)
			if next := n.acquire("v", false, long); next <= a {
				n.Errorf("the writer's counter %d follows %d", next, a)
			}
		})
		each("none is given the key back under a counter that is at its end", func(n readersNode) {
			locktest.Do(n.T, n.server, "SET", tokenKey(n.key), strconv.FormatInt(script.MaxCounter, 10))
			n.is("given back", n.repair("a", 1), vote.NotOurs)
			if v := locktest.Value(n.T, n.server, n.key); v != "" {
				n.Errorf("the key has %q", v)
			}
		})
		each("a grant that is executed again after a writer confirms nothing", func(n readersNode) {
			a := n.acquire("a", true, long)
			n.is("confirmed", n.confirm("a", a, a), vote.Granted)
			n.is("released", n.release("a", true), vote.Granted)
			w := n.acquire("w", false, long)
			n.is("released", n.release("w", false), vote.Granted)
			again := n.acquire("a", true, long)
			n.is("confirmed again", n.confirm("a", a, again+10), vote.NotOurs)
			if c := n.counter(); c != again || again <= w {
				n.Errorf("the counter is %d; granted under %d after %d", c, again, w)
			}
		})
		each("who reads no more confirms nothing", func(n readersNode) {
			a := n.acquire("a", true, long)
			n.acquire("b", true, long)
			n.is("a leaves", n.release("a", true), vote.Granted)
			n.is("confirmed", n.confirm("a", a, a+1), vote.NotOurs)
			n.is("b", n.confirm("b", a, a+1), vote.Granted)
			n.is("b leaves", n.release("b", true), vote.Granted)
			n.is("confirmed where nobody reads", n.confirm("b", a+1, a+2), vote.NotOurs)
		})
		each("a key that was lost with its counter is given back with it, and not in place of a lock of another kind", func(n readersNode) {
			a := n.acquire("a", true, long)
			locktest.Do(n.T, server, "DEL", n.key, tokenKey(n.key))
			locktest.Do(n.T, server, "HSET", n.key, "theirs", "1")
			n.is("of another kind", n.repair("a", a), vote.NotOurs)
			n.is("acquired of another kind", n.try("b"), vote.Refused)
			if kind := locktest.Do(n.T, server, "TYPE", n.key); kind != "hash" {
				n.Errorf("a lock of another kind was replaced by a %v", kind)
			}
			locktest.Do(n.T, server, "DEL", n.key)
			n.is("given back", n.repair("a", a), vote.Granted)
			if c := n.counter(); c != a {
				n.Errorf("the counter is %d, not %d", c, a)
			}
		})
		each("who left while the key was lost does not come back with it", func(n readersNode) {
			a := n.acquire("a", true, long)
			n.acquire("b", true, long)
			locktest.Do(n.T, server, "DEL", n.key) // and not the list of readers
			n.is("b leaves", n.release("b", true), vote.NotOurs)
			n.is("a is given it back", n.repair("a", a), vote.Granted)
			n.is("b", n.extend("b", long, a), vote.NotOurs)
			n.is("a leaves", n.release("a", true), vote.Granted)
			if v := locktest.Value(n.T, server, n.key); v != "" {
				n.Errorf("nobody reads, and the key has %q", v)
			}
		})
		each("a writer's key is for the reader whom it is transferred to", func(n readersNode) {
			w := n.acquire("w", false, long)
			r := vote.Acquire{Key: n.key, ID: "a", TTL: long, Proposed: w, Shared: true, From: "v"}
			n.is("from another", n.node.Acquire(n.Context(), r).Verdict, vote.Held)
			r.From = "w"
			if a := n.node.Acquire(n.Context(), r); a.Verdict != vote.Granted || !a.Transferred || a.Counter <= w {
				n.Errorf("%v under %d after %d, transferred: %t", a.Verdict, a.Counter, w, a.Transferred)
			}
			n.is("w has it no more", n.release("w", false), vote.Held)
			r.ID = "b"
			if b := n.node.Acquire(n.Context(), r); b.Verdict != vote.Granted || b.Transferred {
				n.Errorf("%v, transferred: %t", b.Verdict, b.Transferred)
			}
		})
		each("a reader comes in while readers are woken up", func(n readersNode) {
			n.wokenUp(vote.Reader, locktest.ServerTime(n.T, server).Add(script.Grace/2))
			n.acquire("a", true, long)
		})
		each("an empty value is another's", func(n readersNode) {
			locktest.Do(n.T, server, "SET", n.key, "")
			n.is("acquired", n.try("a"), vote.Held)
		})
		each("where the counter is gone, the key says under which one readers have it", func(n readersNode) {
			a := n.acquire("a", true, long)
			locktest.Do(n.T, server, "DEL", tokenKey(n.key))
			if again := n.acquire("a", true, long); again != a {
				n.Errorf("a repeat's counter is %d after %d", again, a)
			}
			if b := n.acquire("b", true, long); b != a || n.counter() != a {
				n.Errorf("the next reader's counter is %d after %d, and %d is stored", b, a, n.counter())
			}
			if left := locktest.Remaining(n.T, server, tokenKey(n.key)); left < 2*time.Minute {
				n.Errorf("the counter has %v left", left)
			}
			locktest.Do(n.T, server, "DEL", tokenKey(n.key))
			locktest.Do(n.T, server, "RPUSH", tokenKey(n.key), "theirs")
			n.is("beside a counter of another kind", n.try("c"), vote.Refused)
			if kind := locktest.Do(n.T, server, "TYPE", tokenKey(n.key)); kind != "list" {
				n.Errorf("a counter of another kind was replaced by a %v", kind)
			}
			n.is("c is not in", n.extend("c", long, 1), vote.NotOurs)
		})
		each("a larger token is written back", func(n readersNode) {
			a := n.acquire("a", true, long)
			n.is("confirmed", n.confirm("a", a, a+5), vote.Granted)
			if b := n.acquire("b", true, long); b != a+5 {
				n.Errorf("the next reader's counter is %d, not %d", b, a+5)
			}
			if again := n.acquire("b", true, long); again != a+5 {
				n.Errorf("a repeat's counter is %d, not %d", again, a+5)
			}
			n.is("extended", n.extend("b", long, a+7), vote.Granted)
			n.release("a", true)
			n.release("b", true)
			locktest.Do(n.T, server, "SET", tokenKey(n.key), strconv.FormatUint(n.counter()+1e6, 10)) // beyond the clock
			c := n.counter()
			if w := n.acquire("w", false, long); w <= c {
				n.Errorf("the writer's counter %d follows %d", w, c)
			}
		})
		each("the key lasts as long as the last reader", func(n readersNode) {
			n.acquire("a", true, long)
			n.acquire("b", true, middle)
			n.acquire("c", true, long)
			n.is("c leaves", n.release("c", true), vote.Granted)
			if left := locktest.Remaining(n.T, server, n.key); left <= middle {
				n.Errorf("the key has %v left", left)
			}
			n.is("a leaves", n.release("a", true), vote.Granted)
			for _, key := range []string{n.key, node.ReadersKey(n.key)} {
				if left := locktest.Remaining(n.T, server, key); left > middle {
					n.Errorf("%q has %v left", key, left)
				}
			}
			if a := n.node.Release(n.Context(), vote.Release{Key: n.key, ID: "a", Shared: true}); a.Verdict == vote.Granted {
				n.Error("a leaves again")
			}
			n.is("b", n.extend("b", long, 1), vote.Granted)
			n.is("b leaves", n.release("b", true), vote.Granted)
			for _, key := range append(node.SideKeys(n.key)[1:], n.key) {
				if got := locktest.Do(n.T, server, "EXISTS", key); got != int64(0) {
					n.Errorf("%s is left", key)
				}
			}
		})
		each("a key that somebody made persistent ends with the last reader again", func(n readersNode) {
			n.acquire("a", true, long)
			locktest.Do(n.T, server, "PERSIST", n.key)
			n.acquire("b", true, middle)
			for _, key := range []string{n.key, node.ReadersKey(n.key)} {
				if left := locktest.Remaining(n.T, server, key); left <= middle || left > long {
					n.Errorf("%q has %v left", key, left)
				}
			}
			n.is("a", n.extend("a", long, 1), vote.Granted)
		})
		each("each expires by itself", func(n readersNode) {
			n.acquire("b", true, long)
			n.acquire("a", true, short)
			n.acquire("c", true, short)
			until := locktest.ServerTime(n.T, server).Add(short)
			locktest.Await(n.T, "a is over", func() bool { return locktest.ServerTime(n.T, server).After(until) })
			n.is("a", n.extend("a", long, 1), vote.NotOurs)
			n.acquire("a", true, long) // no repeat: it is in anew
			n.is("a again", n.extend("a", long, 1), vote.Granted)
			n.is("b", n.extend("b", long, 1), vote.Granted)
			if left := locktest.Do(n.T, server, "ZCARD", node.ReadersKey(n.key)); left != int64(2) {
				n.Errorf("%v are listed as readers", left)
			}
			n.release("a", true)
			n.release("b", true)
		})
		each("who is over keeps nobody waiting", func(n readersNode) {
			n.acquire("a", true, short)
			n.acquire("b", true, long)
			until := locktest.ServerTime(n.T, server).Add(short)
			lapse := n.enqueue("/1")
			locktest.Await(n.T, "a is over", func() bool { return locktest.ServerTime(n.T, server).After(until) })
			if a := n.node.Release(n.Context(), vote.Release{Key: n.key, ID: "b", TTL: time.Minute, Shared: true}); a.Verdict != vote.Granted || !a.Woken && locktest.ServerTime(n.T, server).Before(lapse) {
				n.Errorf("b's release: %v, somebody was woken up: %t", a.Verdict, a.Woken)
			}
			if left := locktest.Do(n.T, server, "EXISTS", n.key, node.ReadersKey(n.key)); left != int64(0) {
				n.Errorf("%v keys are left", left)
			}
		})
		each("a key that was lost is given back, also after a writer and among later readers", func(n readersNode) {
			a := n.acquire("a", true, long)
			locktest.Do(n.T, server, "DEL", n.key)
			n.is("extended", n.extend("a", long, a), vote.NotOurs)
			n.is("repaired", n.repair("a", a), vote.Granted)
			n.is("extended", n.extend("a", long, a), vote.Granted)
			b := n.acquire("b", true, long)
			if b != a {
				n.Errorf("the next reader's counter is %d, not %d", b, a)
			}
			locktest.Do(n.T, server, "DEL", n.key)
			w := n.acquire("w", false, long)
			n.is("beside a writer", n.repair("a", a), vote.NotOurs)
			n.is("extended beside a writer", n.extend("a", long, a), vote.Held)
			n.is("released", n.release("w", false), vote.Granted)
			n.is("after a writer", n.repair("a", a), vote.Granted)
			c := n.acquire("c", true, long)
			if c <= w {
				n.Errorf("who joins after the writer is granted under %d, after %d", c, w)
			}
			n.is("confirmed by who joins", n.confirm("c", c, c), vote.Granted)
			locktest.Do(n.T, server, "DEL", n.key)
			d := n.acquire("d", true, long)
			n.is("extended beside later readers", n.extend("a", long, a), vote.NotOurs)
			n.is("among later readers", n.repair("a", a), vote.Granted)
			n.is("extended among later readers", n.extend("a", long, a), vote.Granted)
			if got := n.counter(); got != d {
				n.Errorf("the counter is %d after %d", got, d)
			}
			n.is("among earlier readers", n.repair("e", d+1e9), vote.Granted)
			if got := n.counter(); got != d+1e9 {
				n.Errorf("the counter is %d, not the larger token %d", got, d+1e9)
			}
		})
	})
}
