package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// Nothing is sent for a lock whose validity is over, by either clock.
func TestExtendAfterLapse(t *testing.T) {
	t.Parallel()
	for _, asleep := range []bool{false, true} {
		t.Run(fmt.Sprintf("asleep=%t", asleep), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				c := newBubbleClock()
				lease := acquired(t, engineOn(t, nodes, c), "mine")
				rest()
				if asleep {
					c.suspend(time.Until(lease.Until().Mono))
				} else {
					time.Sleep(time.Until(lease.Until().Mono))
				}
				// It is free, and stays so.
				for _, s := range nodes {
					s.put("", 0)
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Lapsed {
					t.Errorf("%v", end)
				}
				rest()
				if n := total(nodes, "extend") + total(nodes, "repair"); n != 0 {
					t.Errorf("%d steps were sent for it", n)
				}
			})
		})
	}
}

// A quorum extends the keys, and its answers come when the validity has run
// out: that is a lost lock, whether the time was spent on the way or asleep.
func TestExtensionThatCompletesTooLate(t *testing.T) {
	t.Parallel()
	for _, asleep := range []bool{false, true} {
		t.Run(fmt.Sprintf("asleep=%t", asleep), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				c := newBubbleClock()
				lease := acquired(t, engineOn(t, nodes, c), "mine")
				rest()
				until := lease.Until()
				for _, s := range nodes {
					s.set(func(s *server) { s.back = 20 * time.Millisecond })
				}
				if asleep {
					time.AfterFunc(10*time.Millisecond, func() { c.suspend(10 * time.Second) })
				} else {
					time.Sleep(time.Until(until.Mono) - 20*time.Millisecond)
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Lapsed {
					t.Errorf("%v", end)
				}
				if lease.Until() != until {
					t.Errorf("the validity moved from %v to %v", until, lease.Until())
				}
				if n := total(nodes, "extend"); n != 3 {
					t.Fatalf("%d nodes extended: the case is not made", n)
				}
				// What was extended all the same is released.
				lease.Release()
				rest()
				if r := holders(nodes); r[0]+r[1]+r[2] != "" {
					t.Errorf("left: %q", r)
				}
			})
		})
	}
}

// The last moment at which an extension counts, and the first at which it does
// not.
func TestExtensionAtTheVeryEnd(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{2*time.Millisecond + 1, 2 * time.Millisecond} {
		t.Run(left.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3) // a round trip takes 2 ms
				lease := acquired(t, newEngine(t, nodes), "mine")
				time.Sleep(time.Until(lease.Until().Mono) - left)
				want := Lapsed
				if left > 2*time.Millisecond {
					want = Extended
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != want {
					t.Errorf("%v, want %v", end, want)
				}
			})
		})
	}
}

// A shorter TTL takes nothing from what was granted, here and on the nodes.
func TestExtendNeverShortens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		until := lease.Until()
		if end, _ := lease.Extend(t.Context(), time.Second); end != Extended {
			t.Errorf("%v", end)
		}
		rest()
		if lease.Until() != until {
			t.Errorf("valid until %v, was %v", lease.Until(), until)
		}
		for i, s := range nodes {
			s.set(func(s *server) {
				if !s.expires.After(until.Mono) {
					t.Errorf("node %d keeps the key until %v, the lock is valid until %v", i, s.expires, until.Mono)
				}
			})
		}
	})
}

// Two nodes of three say that they have nothing: it is impossible at once,
// without waiting for the third.
func TestImpossibleAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put("", 0)
		nodes[1].put(theirs, 0)
		nodes[2].set(func(s *server) { s.lost = true })
		start := time.Now()
		end, answers := lease.Extend(t.Context(), 10*time.Second)
		if took := time.Since(start); end != Missed || took != 2*time.Millisecond || !lease.Impossible() {
			t.Errorf("%v after %v, impossible %t", end, took, lease.Impossible())
		}
		for i, want := range []vote.Verdict{vote.NotOurs, vote.Held, vote.Unknown} {
			if got := answers[i].Verdict; got != want {
				t.Errorf("node %d is said to have answered %q, want %q", i, got, want)
			}
		}
		rest()
		if n := total(nodes, "repair"); n != 0 {
			t.Errorf("%d repairs", n)
		}
	})
}

// What nodes said in different rounds adds up, until they say otherwise.
func TestImpossibleOverSeveralRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put(theirs, 0)
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended || lease.Impossible() {
			t.Fatalf("%v, impossible %t", end, lease.Impossible())
		}
		rest()
		nodes[0].set(func(s *server) { s.lost = true })
		nodes[1].put("", 0)
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Missed || !lease.Impossible() {
			t.Fatalf("%v, impossible %t", end, lease.Impossible())
		}
	})
}

// The caller's ctx ends its wait. The round is missed, and the lock holds as
// long as it did.
func TestExtendCallerGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		until := lease.Until()
		thaws := []func(){nodes[0].freeze(), nodes[1].freeze()}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		start := time.Now()
		if end, _ := lease.Extend(ctx, 10*time.Second); end != Missed || time.Since(start) != 5*time.Millisecond {
			t.Errorf("%v after %v", end, time.Since(start))
		}
		if lease.Until() != until {
			t.Error("the validity changed")
		}
		for _, thaw := range thaws {
			thaw()
		}
		rest()
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Errorf("the next one: %v", end)
		}
	})
}

// One round runs at a time; who comes meanwhile waits for it, or for its ctx.
func TestOneExtensionAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		for _, s := range nodes {
			s.set(func(s *server) { s.back = 10 * time.Millisecond })
		}
		start := time.Now()
		ends := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				if end, _ := lease.Extend(context.Background(), 10*time.Second); end != Extended {
					t.Errorf("%v", end)
				}
				ends <- time.Since(start)
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if end, _ := lease.Extend(ctx, 10*time.Second); end != Missed || time.Since(start) != 5*time.Millisecond {
			t.Errorf("%v after %v", end, time.Since(start))
		}
		if first, second := <-ends, <-ends; first != 11*time.Millisecond || second != 22*time.Millisecond {
			t.Errorf("rounds ended after %v and %v", first, second)
		}
		rest()
		// The second round does not wait for a node that still has the first.
		if n := total(nodes, "extend"); n < 5 || n > 6 {
			t.Errorf("%d nodes extended in two rounds", n)
		}
	})
}

// The release comes while an extension or its repair is under way on a node: it
// follows there, and nothing is left.
func TestReleaseDuringExtension(t *testing.T) {
	t.Parallel()
	for _, moment := range []time.Duration{0, 500 * time.Microsecond, 1500 * time.Microsecond, 2 * time.Millisecond, 2500 * time.Microsecond,
		3500 * time.Microsecond, 5 * time.Millisecond, 7 * time.Millisecond, 12 * time.Millisecond} {
		for _, confirmed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v confirmed=%t", moment, confirmed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					nodes := servers(t, 5)
					lease := acquired(t, newEngine(t, nodes), "mine")
					rest()
					late := 10 * time.Millisecond
					nodes[0].put("", 0) // to be repaired
					nodes[1].put("", 0) // to be repaired, and says so late
					nodes[1].set(func(s *server) { s.back = late })
					if !confirmed {
						nodes[2].set(func(s *server) { s.there = late })
					}
					var end Extension
					var decided time.Time
					go func() {
						end, _ = lease.Extend(context.Background(), 10*time.Second)
						decided = time.Now()
					}()
					synctest.Wait()
					time.Sleep(moment)
					begun := time.Now()
					lease.Release()
					rest()
					for i, s := range nodes {
						if r := s.holder(); r != "" {
							t.Errorf("node %d has the key %q; it did %v", i, r, s.order())
						}
					}
					if end == Extended && decided.After(begun) {
						t.Errorf("the extension was decided %v after the release, and says that the lease was extended", decided.Sub(begun))
					}
					if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Over {
						t.Errorf("an extension after the release: %v", end)
					}
				})
			})
		}
	}
}

// A step that an answer says is not possible is no yes.
func TestExtendCountsGrantsOnly(t *testing.T) {
	t.Parallel()
	for v := vote.Unknown; v <= vote.Refused; v++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 3)
			lease := acquired(t, newEngine(t, nodes), "mine")
			rest()
			for _, s := range nodes {
				s.set(func(s *server) { s.refusal = &vote.Answer{Verdict: v} })
			}
			want := Missed
			if v == vote.Granted {
				want = Extended
			}
			if end, _ := lease.Extend(t.Context(), 10*time.Second); end != want {
				t.Errorf("%v: %v", v, end)
			}
			if gone := v == vote.NotOurs || v == vote.Held; lease.Impossible() != gone {
				t.Errorf("%v: impossible is %t", v, lease.Impossible())
			}
		})
	}
}

// A lease is not extended any more when it was held for as long as its limit says, however early the
// extension was decided: what counts is when it is sent.
func TestExtensionBeyondTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, e, leases := shelves(t, 3)
		for _, l := range leases[1:] {
			l.Limit(3 * time.Second)
		}
		time.Sleep(time.Until(leases[1].Since().Add(3*time.Second).Mono) - time.Nanosecond)
		if end, _ := leases[1].Extend(t.Context(), 5*time.Second); end != Extended {
			t.Errorf("just before: %v", end)
		}
		until := leases[1].Until()
		time.Sleep(2 * time.Second) // the process stalls
		batch := []renewal{{lease: leases[0], ttl: 5 * time.Second}, {lease: leases[1], ttl: 5 * time.Second}}
		e.extendBatch(t.Context(), batch, 0)
		alone, _ := leases[2].Extend(t.Context(), 5*time.Second)
		if batch[0].end != Extended || batch[1].end != Overlong || alone != Overlong {
			t.Errorf("without a limit %v, beyond it %v, alone %v", batch[0].end, batch[1].end, alone)
		}
		if leases[1].Until() != until {
			t.Errorf("it ends at %v, which was %v", leases[1].Until(), until)
		}
		for _, l := range leases[1:] { // a round that was not begun keeps no other from its turn
			if end, _ := l.Extend(t.Context(), 5*time.Second); end != Overlong {
				t.Errorf("once more: %v", end)
			}
		}
	})
}
