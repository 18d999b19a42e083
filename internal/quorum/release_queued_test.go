package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// keptBy returns n nodes of which the last keeps a queue in which somebody waits.
func keptBy(t *testing.T, n int) []*server {
	t.Helper()
	nodes := servers(t, n)
	nodes[n-1].set(func(s *server) { s.waiting = true })
	return nodes
}

// waiters is the request of one who waits at the last of n nodes and was woken up by from.
func waiters(id, from string, n int) vote.Acquire {
	request := requestOf(id)
	request.From, request.Ticket = from, vote.Ticket{Waiter: "w", Node: n - 1}
	return request
}

func repeat(id string, n int) []string { return slices.Repeat([]string{id}, n) }

// A lock for which others wait is given up on the arbiter, and
// taken over on the others: a command a node and one more.
func TestReleaseToQueue(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := keptBy(t, n)
			one, other := newEngine(t, nodes), newEngine(t, nodes)
			lease := acquired(t, one, "0")
			rest()
			for k := range 6 {
				id, next := fmt.Sprint(k), fmt.Sprint(k+1)
				start := time.Now()
				answers, ok := lease.Release()
				if took := time.Since(start); !ok || took != 2*time.Millisecond {
					t.Fatalf("N=%d: %v, %t after %v", n, answers, ok, took)
				}
				if _, again := lease.Release(); again {
					t.Errorf("N=%d: it was released twice", n)
				}
				granted := 0
				for _, a := range answers {
					if a.Verdict == vote.Granted {
						granted++
					}
				}
				if want := append(repeat(id, n-1), ""); granted < Majority(n) || !slices.Equal(holders(nodes), want) {
					t.Errorf("N=%d: the keys are %v, want %v, by the answers %v", n, holders(nodes), want, answers)
				}
				token := lease.Token()
				lease, answers = other.Acquire(t.Context(), waiters(next, id, n))
				if lease == nil || lease.Token() <= token {
					t.Fatalf("N=%d: not taken over: %v", n, answers)
				}
				time.Sleep(stepTime)
				if want := repeat(next, n); !slices.Equal(holders(nodes), want) {
					t.Errorf("N=%d: the keys are %v, want %v", n, holders(nodes), want)
				}
				one, other = other, one
			}
			if got := total(nodes, "acquire") + total(nodes, "release"); got != n+6*(n+1) {
				t.Errorf("N=%d: %d commands", n, got)
			}
			nodes[n-1].set(func(s *server) { s.waiting = false })
			lease.Release()
			time.Sleep(transferTime)
			rest()
			if got := holders(nodes); !slices.Equal(got, repeat("", n)) {
				t.Errorf("N=%d: left behind: %v", n, got)
			}
		})
	}
}

// remembered returns how many transfers are, and the holder of the one of key.
func (t *Transfers) remembered(key string) (n int, holder string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := t.of[key]; left != nil {
		holder = left.request.ID
	}
	return len(t.of), holder
}

// Whoever is woken up never comes: what was left to it is removed after a while, and
// at once when the client is closed. Nobody is woken up after all: it is removed
// together with the rest.
func TestReleaseToQueueToNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		then func(transfers *Transfers)
	}{
		{"who was woken up is gone", func(transfers *Transfers) {
			time.Sleep(transferTime)
			synctest.Wait()
			if n, _ := transfers.remembered("x"); n > 0 {
				panic("it is remembered")
			}
		}},
		{"who was woken up has no use for it", func(transfers *Transfers) { transfers.Remove("x", "mine") }},
		{"the client is closed", (*Transfers).close},
		{"the client was closed before", func(transfers *Transfers) {
			transfers.close()
			rest()
			for _, v := range transfers.engine.voters[:4] {
				v.(*server).put("mine", 0)
			}
			transfers.leave(vote.Release{Key: "x", ID: "mine", TTL: 10 * time.Second}, []int{0, 1, 2, 3}, nil)
		}},
		{"it is one too many", func(transfers *Transfers) {
			for i := range maxTransfers - 1 {
				transfers.leave(vote.Release{Key: fmt.Sprint(i), ID: "late", TTL: 10 * time.Second}, nil, nil)
			}
			transfers.leave(vote.Release{Key: "y", ID: "mine", TTL: 10 * time.Second}, []int{0, 1, 2, 3}, nil)
			transfers.leave(vote.Release{Key: "0", ID: "later", TTL: 10 * time.Second}, nil, nil)
			if n, holder := transfers.remembered("0"); n != maxTransfers || holder != "later" {
				panic("others are remembered than the last of each key, or too many")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := keptBy(t, 5)
				e := newEngine(t, nodes)
				lease := acquired(t, e, "mine")
				rest()
				lease.Release()
				rest()
				if got := holders(nodes); !slices.Equal(got, append(repeat("mine", 4), "")) {
					t.Errorf("transferred: %v", got)
				}
				c.then(transfersOf(lease))
				rest()
				if got := holders(nodes); !slices.Equal(got, repeat("", 5)) {
					t.Errorf("left behind: %v", got)
				}
			})
		})
	}
	t.Run("nobody waits any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes := keptBy(t, 5)
			lease := acquired(t, newEngine(t, nodes), "mine")
			rest()
			nodes[4].set(func(s *server) { s.waiting = false })
			start := time.Now()
			if _, ok := lease.Release(); !ok || time.Since(start) != 4*time.Millisecond {
				t.Errorf("released %t after %v", ok, time.Since(start))
			}
			rest()
			if got := holders(nodes); !slices.Equal(got, repeat("", 5)) {
				t.Errorf("left behind: %v", got)
			}
		})
	})
}

// A step is still under way on another node when the lock is transferred: its key
// is released after it, or left if it ends in time. The arbiter
// does not answer: all is released, and the caller hardly waits.
func TestReleaseToQueueWhileStepsAreUnderWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		slow  int
		there time.Duration
		// arbiter is how long a message to the arbiter takes by the time of the release.
		arbiter, longest time.Duration
		want             string
	}{
		{"another", 0, 10 * time.Millisecond, time.Millisecond, 2 * time.Millisecond, ""},
		{"another, in time", 0, 2500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, "mine"},
		{"another, given up", 0, 20 * time.Millisecond, 8 * time.Millisecond, 9 * time.Millisecond, ""},
		{"the arbiter", 4, 3 * time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond, "mine"},
		{"the arbiter, silent", 4, time.Hour, 0, stepTime/10 + stepTime/4 + 2*time.Millisecond, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := keptBy(t, 5)
				nodes[c.slow].set(func(s *server) {
					s.there = c.there
					if s.lost = c.there == time.Hour; s.lost {
						s.there = 0
					}
				})
				e := newEngine(t, nodes)
				request := requestOf("mine")
				request.Ticket = vote.Ticket{Waiter: "w", Node: 4}
				lease, answers := e.Acquire(t.Context(), request)
				if lease == nil {
					t.Fatal(answers)
				}
				nodes[4].set(func(s *server) { s.there = c.arbiter })
				start := time.Now()
				if _, ok := lease.Release(); !ok || time.Since(start) > c.longest {
					t.Errorf("released %t after %v, want %v at most", ok, time.Since(start), c.longest)
				}
				time.Sleep(transferTime / 2)
				if got := holders(nodes)[0]; got != c.want {
					t.Errorf("node 0 has the key %q, want %q", got, c.want)
				}
				if got := holders(nodes)[4]; got != "" {
					t.Errorf("the arbiter has the key %q", got)
				}
			})
		})
	}
}

// stalledClock is a clock whose readers stall for as long as stall says.
type stalledClock struct {
	*bubbleClock
	stall atomic.Int64
}

func (c *stalledClock) Now() clock.Instant {
	time.Sleep(time.Duration(c.stall.Load()))
	return c.bubbleClock.Now()
}

// The client is closed while what was left to a waiter is about to be removed, as its time is over: it is removed all the same.
func TestCloseWhileWhatWasLeftIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := keptBy(t, 3)
		c := &stalledClock{bubbleClock: newBubbleClock()}
		e := New(voters(nodes), c, stepTime)
		NewTransfers(e, time.Minute)
		lease := acquired(t, e, "mine")
		rest()
		lease.Release()
		c.stall.Store(int64(time.Second))
		time.Sleep(transferTime)
		synctest.Wait()
		if got := holders(nodes); !slices.Equal(got, []string{"mine", "mine", ""}) {
			t.Errorf("removed already: %v", got)
		}
		e.Close()
		if got := holders(nodes); !slices.Equal(got, repeat("", 3)) {
			t.Errorf("left behind: %v", got)
		}
		time.Sleep(time.Minute)
	})
}

// Every mask of what may have happened to the keys that were left: whoever was
// called holds when a quorum grants, what is another's stays, and nothing of the
// holder before is left where a message arrives.
func TestTakeOverEveryMask(t *testing.T) {
	t.Parallel()
	everyMask(t, 2, takeOverOnce)
}

func takeOverOnce(t *testing.T, mask []loss) {
	t.Helper()
	nodes, name, e, lease, end := heldBefore(t, mask, "mine")
	defer end()
	lease.Detach()
	arbiter := len(mask) - 1 // has called the waiter when it released the key
	nodes[arbiter].put("", 0)
	grants := 0
	for i, l := range mask {
		nodes[i].set(l.set)
		if id := nodes[i].holder(); l.name != "hung" && l.name != "down" && (id == "mine" || id == "") {
			grants++
		}
	}
	next, answers := e.Acquire(t.Context(), waiters("next", "mine", len(mask)))
	if (next != nil) != (grants >= Majority(len(mask))) {
		t.Errorf("%s: the next holds: %t, %d of its keys were granted: %v", name, next != nil, grants, answers)
	}
	if next != nil && next.Token() <= lease.Token() {
		t.Errorf("%s: token %d follows %d", name, next.Token(), lease.Token())
	}
	rest()
	for i, l := range mask {
		want := ""
		switch {
		case l.name == "another's":
			want = theirs
		case (l.name == "down" || l.name == "hung") && i != arbiter:
			want = "mine" // no message reaches it
		case next != nil && l.name != "down" && l.name != "hung":
			want = "next"
		}
		if got := nodes[i].holder(); got != want {
			t.Errorf("%s: node %d has the key %q, want %q", name, i, got, want)
		}
	}
	if next != nil {
		next.Release()
	}
	rest()
}

// Whoever is woken up never comes, and others get the lock without the node on which a key was left to it. That key is removed
// all the same when the former holder's process leaves its next keys to somebody.
func TestLeftTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := keptBy(t, 3)
		one, other := newEngine(t, nodes), newEngine(t, nodes)
		nodes[1].set(func(s *server) { s.down = true })
		lease := acquired(t, one, "0")
		nodes[1].set(func(s *server) { s.down = false })
		lease.Release()
		for i, e := range []*Engine{other, one} {
			next, answers := e.Acquire(t.Context(), requestOf(fmt.Sprint(i+1)))
			if next == nil {
				t.Fatalf("not held: %v", answers)
			}
			time.Sleep(stepTime)
			next.Release()
			if want := []string{"0", fmt.Sprint(i + 1), ""}; !slices.Equal(holders(nodes), want) {
				t.Fatalf("the keys are %v, want %v", holders(nodes), want)
			}
			if i == 0 {
				nodes[1].put("", 0) // the next in the queue has taken that over, and left
			}
		}
		time.Sleep(transferTime)
		rest()
		if got := holders(nodes); !slices.Equal(got, repeat("", 3)) {
			t.Errorf("left behind: %v", got)
		}
	})
}

// waking is a node that wakes up somebody at each release.
type waking struct{ *server }

func (s waking) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	a := s.server.Acquire(ctx, r)
	a.Waiting = true
	return a
}

func (s waking) Release(ctx context.Context, r vote.Release) vote.Answer {
	a := s.server.Release(ctx, r)
	a.Woken = a.Verdict == vote.Granted
	return a
}

// What several keys or readers have is not for one who waits for one key: it is released everywhere, though somebody waits.
func TestReleaseLeavesNothingThatCannotBeTakenOver(t *testing.T) {
	t.Parallel()
	for kind, request := range map[string]vote.Acquire{"several keys": {With: &vote.Keys{"y"}}, "a reader": {Shared: true}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 3)
			e := New([]Voter{nodes[0], nodes[1], waking{nodes[2]}}, newBubbleClock(), stepTime)
			NewTransfers(e, time.Minute)
			defer e.Close()
			with, shared := request.With, request.Shared
			request = requestOf("mine")
			request.With, request.Shared = with, shared
			lease, answers := e.Acquire(t.Context(), request)
			if lease == nil {
				t.Fatalf("%s: not held: %v", kind, answers)
			}
			rest()
			lease.Release()
			time.Sleep(2 * stepTime)
			if got := holders(nodes); !slices.Equal(got, repeat("", 3)) {
				t.Errorf("%s: left behind: %v", kind, got)
			}
			rest()
		})
	}
}

// A waiter has a key removed that was left to it and that it cannot replace, but not where another holder's is in its place,
// nor on the node that keeps the queue, where it was released.
func TestWhatIsNotTakenOverIsRemoved(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		answer  vote.Answer
		removed bool
	}{
		"not admitted":                {vote.Answer{Verdict: vote.NotAdmitted, Err: errSimulated}, true},
		"refused":                     {vote.Answer{Verdict: vote.Refused, Err: errSimulated}, true},
		"another key is in the way":   {vote.Answer{Verdict: vote.Held, Holder: theirs, Which: 1}, true},
		"another holder is in place":  {vote.Answer{Verdict: vote.Held, Holder: theirs}, false},
		"it was replaced by somebody": {vote.Answer{Verdict: vote.Granted, Counter: 1}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 5)
				all, v := tellers(nodes)
				e := New(v, newBubbleClock(), stepTime)
				NewTransfers(e, time.Minute)
				t.Cleanup(e.Close)
				for _, i := range []int{0, 4} {
					nodes[i].set(func(s *server) { s.refusal = &c.answer })
				}
				lease, answers := e.Acquire(t.Context(), waiters("mine", "before", 5))
				if lease == nil {
					t.Fatal(answers)
				}
				rest()
				var want []vote.Release
				if c.removed {
					want = []vote.Release{{Key: "x", ID: "before", TTL: time.Minute}}
				}
				if got := all[0].requests; !slices.Equal(got, want) {
					t.Errorf("released with %+v, want %+v", got, want)
				}
				for _, n := range all[1:] {
					if len(n.requests) > 0 {
						t.Errorf("another node was released with %+v", n.requests)
					}
				}
				transfersOf(lease).Remove("y", "gone")
				rest()
				for i, n := range all {
					if got := n.requests; len(got) == 0 || got[len(got)-1] != (vote.Release{Key: "y", ID: "gone", TTL: time.Minute}) {
						t.Errorf("node %d was released with %+v", i, got)
					}
				}
				lease.Detach()
			})
		})
	}
}

// The keys are left to the first in the queue of the one node where somebody waits, whichever that is. Where others wait on
// several nodes, each wakes up its first.
func TestWhoseQueueIsServed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting []int
		want    []string
	}{
		{[]int{0}, []string{"", "mine", "mine"}},
		{[]int{1}, []string{"mine", "", "mine"}},
		{[]int{0, 1}, repeat("", 3)},
		{[]int{1, 2}, repeat("", 3)},
		{nil, repeat("", 3)},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 3)
			for _, i := range c.waiting {
				nodes[i].set(func(s *server) { s.waiting = true })
			}
			lease := acquired(t, newEngine(t, nodes), "mine")
			rest()
			lease.Release()
			if rest(); !slices.Equal(holders(nodes), c.want) {
				t.Errorf("waiting on %v: the keys are %v, want %v", c.waiting, holders(nodes), c.want)
			}
		})
	}
}
