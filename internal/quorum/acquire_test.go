package quorum

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// rest is longer than any step and its undoing take here.
func rest() { time.Sleep(settled); synctest.Wait() }

// newEngine returns an engine that is closed when the bubble's test is done.
func newEngine(t *testing.T, nodes []*server) *Engine {
	t.Helper()
	return engineOn(t, nodes, newBubbleClock())
}

func engineOn(t *testing.T, nodes []*server, c *bubbleClock) *Engine {
	t.Helper()
	e := New(voters(nodes), c, stepTime)
	NewTransfers(e, time.Minute)
	t.Cleanup(e.Close)
	return e
}

func requestOf(id string) vote.Acquire {
	return vote.Acquire{Key: "x", ID: id, TTL: 10 * time.Second, Proposed: uint64(time.Now().UnixMicro())}
}

// acquired makes one attempt that must hold.
func acquired(t *testing.T, e *Engine, id string) *Lease {
	t.Helper()
	lease, answers := e.Acquire(t.Context(), requestOf(id))
	if lease == nil {
		t.Fatalf("%s: not held: %v", id, answers)
	}
	return lease
}

// holders returns who has the key on each node, "" where nobody has.
func holders(nodes []*server) []string {
	all := make([]string, len(nodes))
	for i, s := range nodes {
		all[i] = s.holder()
	}
	return all
}

func counters(nodes []*server) []uint64 {
	all := make([]uint64, len(nodes))
	for i, s := range nodes {
		s.set(func(s *server) { all[i] = s.counter })
	}
	return all
}

func total(nodes []*server, kind string) int {
	n := 0
	for _, s := range nodes {
		n += s.executed(kind)
	}
	return n
}

// ahead sets the node's counter beyond the proposals of the bubble's clock.
func ahead(s *server, by uint64) {
	s.set(func(s *server) { s.counter = 1e18 + by })
}

// Every combination of counters ahead of the proposal: a quorum stores the token,
// and no second round is made when they agree.
func TestDisagreeingCounters(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				combinations := 1
				for range n {
					combinations *= 3
				}
				for code := range combinations {
					nodes := servers(t, n)
					var most, least uint64 = 0, 9
					for i, rest := 0, code; i < n; i, rest = i+1, rest/3 {
						by := uint64(rest % 3)
						most, least = max(most, by), min(least, by)
						ahead(nodes[i], by)
					}
					start := time.Now()
					lease := acquired(t, newEngine(t, nodes), "mine")
					rest()
					// All answers come at the same instant, in any order.
					token := lease.Token()
					if token <= 1e18 || token > 1e18+most+1 {
						t.Errorf("counters %v: token %d", code, token)
					}
					stored := 0
					for _, c := range counters(nodes) {
						if c == token {
							stored++
						}
					}
					if stored < Majority(n) {
						t.Errorf("token %d is stored on %d nodes: %v", token, stored, counters(nodes))
					}
					if most == least && total(nodes, "confirm") > 0 {
						t.Errorf("counters agree and %d confirmations were made", total(nodes, "confirm"))
					}
					lease.Release()
					if took := time.Since(start); took > time.Second {
						t.Errorf("it took %v", took)
					}
				}
			})
		})
	}
}

// Nodes 0 and 1 disagree, and node 2 is not there: the second round is needed
// and costs exactly one round trip more. The validity is counted from the first.
func TestSecondRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		ahead(nodes[0], 99)
		ahead(nodes[1], 4)
		nodes[2].set(func(s *server) { s.down = true })
		start := time.Now()
		lease := acquired(t, newEngine(t, nodes), "mine")
		if took := time.Since(start); took != 4*time.Millisecond {
			t.Errorf("held after %v, want two round trips of 2ms", took)
		}
		if lease.Token() != 1e18+100 {
			t.Errorf("token %d", lease.Token())
		}
		if valid := lease.Until().Mono.Sub(start); valid != 10*time.Second-Drift(10*time.Second) {
			t.Errorf("valid for %v from the first send", valid)
		}
		if nodes[0].executed("confirm") != 0 || nodes[1].executed("confirm") != 1 {
			t.Errorf("node 0 did %v, node 1 did %v", nodes[0].order(), nodes[1].order())
		}
		lease.Release()
		rest()
		if r := holders(nodes); r[0]+r[1]+r[2] != "" {
			t.Errorf("left: %q", r)
		}
	})
}

// Between its grant and its confirmation node 1 lost the key to another
// holder, which raised the counter: the confirmation is refused there, and the
// attempt fails and is undone.
func TestConfirmationIsGuarded(t *testing.T) {
	t.Parallel()
	changes := []struct {
		name   string
		change func(s *server)
		left   string
	}{
		{"the key expired", func(s *server) { s.id = "" }, ""},
		{"another has the key", func(s *server) { s.id = theirs; s.counter++ }, theirs},
		{"ours again after another's", func(s *server) { s.counter += 2 }, ""},
	}
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				ahead(nodes[0], 99)
				ahead(nodes[1], 4)
				nodes[2].set(func(s *server) { s.down = true })
				// Its grant is on the way back for 1 ms after 1 ms.
				time.AfterFunc(1500*time.Microsecond, func() { nodes[1].set(c.change) })
				lease, answers := newEngine(t, nodes).Acquire(t.Context(), requestOf("mine"))
				if lease != nil {
					t.Errorf("held with token %d: %v", lease.Token(), answers)
				}
				if answers[1].Verdict != vote.NotOurs {
					t.Errorf("node 1 answered %v", answers[1].Verdict)
				}
				rest()
				if r := holders(nodes); r[0] != "" || r[1] != c.left || r[2] != "" {
					t.Errorf("left: %q", r)
				}
			})
		})
	}
}

// Node 2 grants while nodes 0 and 1 are in their second round: it is asked to
// confirm too when its counter is smaller, and counts or not as its own answer
// says.
func TestGrantDuringSecondRound(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		counter uint64
		held    bool
		confirm int
	}{
		{"agrees", 99, true, 0},
		{"is behind", 50, true, 1},
		{"is ahead", 200, false, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				ahead(nodes[0], 99)
				ahead(nodes[1], 4)
				ahead(nodes[2], c.counter)
				nodes[2].set(func(s *server) { s.back = 4 * time.Millisecond }) // 1 ms after patience ends
				// Node 1 loses its key before it can confirm.
				time.AfterFunc(1500*time.Microsecond, func() { nodes[1].put("", 0) })
				lease, answers := newEngine(t, nodes).Acquire(t.Context(), requestOf("mine"))
				if (lease != nil) != c.held {
					t.Fatalf("held is %t: %v", lease != nil, answers)
				}
				if got := nodes[2].executed("confirm"); got != c.confirm {
					t.Errorf("node 2 confirmed %d times, want %d", got, c.confirm)
				}
				if lease != nil {
					if lease.Token() != 1e18+100 {
						t.Errorf("token %d", lease.Token())
					}
					lease.Release()
				}
				rest()
				if r := holders(nodes); r[0]+r[1]+r[2] != "" {
					t.Errorf("left: %q", r)
				}
			})
		})
	}
}

// A quorum that grants when nothing of the validity is left is a failure, and is
// undone.
func TestGrantedTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		for _, s := range nodes {
			s.set(func(s *server) { s.there, s.back = time.Millisecond, 20*time.Millisecond })
		}
		request := requestOf("mine")
		request.TTL = 23 * time.Millisecond // 20.77 ms without the drift
		lease, answers := newEngine(t, nodes).Acquire(t.Context(), request)
		if lease != nil {
			t.Errorf("held %v before the end of its validity: %v", time.Until(lease.Until().Mono), answers)
		}
		for i, a := range answers {
			if i < 2 && a.Verdict != vote.Granted && a.Verdict != vote.Unknown {
				t.Errorf("node %d answered %v", i, a.Verdict)
			}
		}
		rest()
		if n := total(nodes, "release"); n != 3 {
			t.Errorf("%d of 3 nodes were released", n)
		}
	})
}

// The machine sleeps while the answers are on their way. Go's monotonic clock
// does not count that, the servers do.
func TestMachineSleptWhileAcquiring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		c := newBubbleClock()
		e := engineOn(t, nodes, c)
		time.AfterFunc(time.Millisecond, func() { c.suspend(10 * time.Second) })
		if lease, _ := e.Acquire(t.Context(), requestOf("mine")); lease != nil {
			t.Error("held, though the machine slept for the whole TTL")
		}
		rest()
		if r := holders(nodes); r[0]+r[1]+r[2] != "" {
			t.Errorf("left: %q", r)
		}
	})
}

// A repeated attempt under the same id would be granted again; each attempt
// brings its own.
func TestReleaseOfAnEarlierAttemptSparesALaterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		e := newEngine(t, nodes)
		// The first attempt is abandoned while all nodes stand still, its
		// releases queue behind it, and the second comes after them.
		thaws := make([]func(), len(nodes))
		for i, s := range nodes {
			thaws[i] = s.freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if lease, _ := e.Acquire(ctx, requestOf("first")); lease != nil {
			t.Fatal("held by nodes that stand still")
		}
		synctest.Wait()
		go func() {
			time.Sleep(10 * time.Millisecond)
			for _, thaw := range thaws {
				thaw()
			}
		}()
		lease := acquired(t, e, "second")
		rest()
		for i, r := range holders(nodes) {
			if r != "second" {
				t.Errorf("node %d has the key %q; it did %v", i, r, nodes[i].order())
			}
		}
		lease.Release()
	})
}

// An attempt ends with its caller's ctx, also that on one node, which the caller's own goroutine asks.
func TestAttemptEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, n)
			for _, s := range nodes {
				s.set(func(s *server) { s.lost = true })
			}
			const wait = stepTime / 4
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			start := time.Now()
			if lease, _ := newEngine(t, nodes).Acquire(ctx, requestOf("mine")); lease != nil || time.Since(start) != wait {
				t.Errorf("%d nodes: %v after %v, want none after %v", n, lease, time.Since(start), wait)
			}
			rest()
		})
	}
}

// Close waits for what goes on in the background, and for nothing else.
func TestCloseWaitsForTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		nodes[2].set(func(s *server) { s.lost = true })
		e := New(voters(nodes), newBubbleClock(), stepTime)
		start := time.Now()
		acquired(t, e, "mine").Release()
		if took := time.Since(start); took >= stepTime {
			t.Errorf("lock and unlock took %v, as long as the node that is lost", took)
		}
		e.Close()
		if took := time.Since(start); took > (1+releasePatience)*stepTime {
			t.Errorf("closed after %v", took)
		}
		if r := holders(nodes); r[0]+r[1]+r[2] != "" {
			t.Errorf("left: %q", r)
		}
	})
}

// panicking is a ctx whose methods panic: Err, or Done before that.
type panicking struct {
	context.Context
	done bool
}

func (c panicking) Done() <-chan struct{} {
	if c.done {
		panic("Done")
	}
	return nil
}

func (panicking) Err() error { panic("Err") }

// A ctx that panics ends the attempt, and nobody hears of the keys: they are deleted.
func TestContextThatPanicsLeavesNothing(t *testing.T) {
	t.Parallel()
	for n, done := range map[int]bool{1: false, 3: true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, n)
			e := newEngine(t, nodes)
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("N=%d: it did not panic", n)
					}
				}()
				e.Acquire(panicking{t.Context(), done}, requestOf("mine"))
			}()
			rest()
			if got := holders(nodes); !slices.Equal(got, repeat("", n)) {
				t.Errorf("N=%d: left behind: %q", n, got)
			}
		})
	}
}
