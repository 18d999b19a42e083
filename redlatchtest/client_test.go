package redlatchtest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/oneshot"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// The work's ctx ends when the lock is lost, at once, and who waits gets the lock, in this
// process or another.
func TestLose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		for name, waiter := range map[string]redlatch.Locker{"own": locks, "peer": locks.Peer(redlatch.Config{})} {
			began := time.Now()
			var out <-chan locktest.Outcome
			err := locks.Do(t.Context(), name, func(ctx context.Context) error {
				out = locktest.LockIn(t.Context(), waiter, name)
				synctest.Wait()
				locks.Lose(name)
				if !errors.Is(context.Cause(ctx), redlatch.ErrLost) {
					t.Errorf("the ctx of the work: %v", context.Cause(ctx))
				}
				return context.Cause(ctx)
			})
			if !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("%s: it took %v", name, took)
			}
			locks.Lose(name) // of whichever client
			if err := o.Lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		locks.Lose("nobody's")
		if held := locks.Held(); len(held) > 0 {
			t.Errorf("held: %v", held)
		}
	})
}

// A loss is one also for who is cut off, and for who has held for longer than MaxHold.
func TestLoseInAnyState(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for name, before := range map[string]func(*Client){
			"cut off": func(c *Client) { c.Cut(true) },
			"MaxHold": func(*Client) { time.Sleep(2 * time.Second) },
			"kept":    func(*Client) {},
		} {
			locks := New(t, redlatch.Config{MaxHold: time.Second})
			lock, err := locks.TryLock(t.Context(), name, redlatch.WithMinHold(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			before(locks)
			want := redlatch.ErrLost
			if name == "kept" {
				want = redlatch.ErrReleased
				if err := lock.Unlock(t.Context()); err != nil || len(locks.Held()) != 1 {
					t.Errorf("%v, held: %v", err, locks.Held())
				}
			}
			locks.Lose(name)
			if err := lock.Err(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
			if held := locks.Held(); len(held) > 0 {
				t.Errorf("%s: held: %v", name, held)
			}
		}
	})
}

// Another has the lock for as long as the test wants, and it is free when that is over.
func TestHoldByAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{Label: "me", MaxHold: time.Second})
		release := locks.HoldByAnother("a")
		time.Sleep(24 * time.Hour)
		_, err := locks.TryLock(t.Context(), "a")
		if holder, _, _ := locktest.FailureOf(t, err).Holder(); !errors.Is(err, redlatch.ErrHeld) || holder.Label != "another" {
			t.Errorf("tried: %v", err)
		}
		out := locktest.LockIn(t.Context(), locks, "a")
		time.Sleep(time.Minute)
		began := time.Now()
		release()
		release()
		if o := <-out; o.Err != nil || time.Since(began) > 0 {
			t.Errorf("%v after the release: %v", time.Since(began), o.Err)
		}
		if labels := locks.Held()["a"].Label; labels != "me" {
			t.Errorf("held by %q", labels)
		}
		defer locks.HoldByAnother("b")() // what is not released ends with the test
		locks.HoldByAnother("c")
		if got := slices.Sorted(maps.Keys(locks.Held())); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("held: %v", got)
		}
		if lock, err := locks.LockAll(t.Context(), []string{"d", "e"}); err != nil || locks.Held()["e"] != locks.Held()["d"] {
			t.Errorf("held: %v, %v", locks.Held(), err)
		} else if locks.Lose("e"); !errors.Is(lock.Err(), redlatch.ErrLost) {
			t.Errorf("one of its names is lost: %v", lock.Err())
		}
		want := []Call{{"TryLock", "a"}, {"Lock", "a"}, {"LockAll", "d"}}
		if got := locks.Calls(); !slices.Equal(got, want) {
			t.Errorf("calls: %v, want %v", got, want)
		}
	})
}

// seen counts what a client of the test is told.
type seen struct{ acquired int }

func (s *seen) Observe(_ context.Context, e redlatch.Event) {
	if _, ok := e.(redlatch.LockAcquired); ok {
		s.acquired++
	}
}

// What another machine does is told neither to the test's own Observer nor to its Logger, not even that it has lost the
// lock; whose it is then, it does not touch.
func TestAnotherIsNotObserved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		observer, log := new(seen), new(strings.Builder)
		locks := New(t, redlatch.Config{Observer: observer, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		release := locks.HoldByAnother("a")
		locks.Lose("a")
		if observer.acquired > 0 || log.Len() > 0 {
			t.Errorf("%d locks acquired, the log has %q", observer.acquired, log)
		}
		lock, err := locks.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if release(); lock.Err() != nil || len(locks.Held()) != 1 {
			t.Errorf("released by another: %v, held: %v", lock.Err(), locks.Held())
		}
		if locks.Lose("a"); !strings.Contains(log.String(), "lock lost") {
			t.Errorf("lost by the test's own client, the log has %q", log)
		}
	})
}

// The first lock of a client takes one round trip, as those do that follow.
func TestFirstLockIsAsQuick(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		const trip = 10 * time.Millisecond
		for _, client := range []*Client{locks, locks.Peer(redlatch.Config{})} {
			client.Delay(trip)
			for range 2 {
				start := time.Now()
				lock, err := client.TryLock(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took != trip {
					t.Errorf("it took %v, want %v", took, trip)
				}
				if err := lock.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A permit that nobody gave back is seen, whatever the keys look like.
func TestPermitIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, template := range []string{"", "app:{name}:lock"} {
			locks := New(t, redlatch.Config{KeyTemplate: template, Label: "me"})
			lock, err := locks.Acquire(t.Context(), "pool", 1)
			if err != nil {
				t.Fatal(err)
			}
			if held := locks.Held(); len(held) != 1 || held["pool#0"].Label != "me" {
				t.Errorf("template %q: held: %v", template, held)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if held := locks.Held(); len(held) > 0 {
				t.Errorf("template %q: released, held: %v", template, held)
			}
		}
	})
}

// Held has the locks by their names as the client's own KeyTemplate has them, and none of another template.
func TestHeldByAnotherTemplate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{KeyTemplate: "one:{name}:lock"})
		for _, template := range []string{"one:{name}", "{name}:lock", "other:{name}:lock"} {
			peer := locks.Peer(redlatch.Config{KeyTemplate: template})
			lock, err := peer.TryLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if held := locks.Held(); len(held) > 0 || len(peer.Held()) != 1 {
				t.Errorf("template %q: held: %v, by the other %v", template, held, peer.Held())
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Who is cut off gets no lock and loses what it has when its validity is over; others go on. What
// it could not release is released when it is back.
func TestCut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		config := redlatch.Config{TTL: 10 * time.Second}
		locks := New(t, config)
		peer := locks.Peer(config)
		held, err := locks.TryLock(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		released, err := locks.TryLock(t.Context(), "released")
		if err != nil {
			t.Fatal(err)
		}
		locks.Cut(true)
		if _, err := locks.TryLock(t.Context(), "free"); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("tried: %v", err)
		}
		if err := released.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("unlocked: %v", err)
		}
		if lock, err := peer.TryLock(t.Context(), "free"); err != nil {
			t.Errorf("another: %v", err)
		} else if err := lock.Unlock(t.Context()); err != nil {
			t.Errorf("another: %v", err)
		}
		out := locktest.LockIn(t.Context(), locks, "free")
		until := held.Until()
		<-held.Context().Done()
		// The guard, but for the grain of the lock's timer.
		if left := time.Until(until); left > time.Second || left < 990*time.Millisecond {
			t.Errorf("lost %v before the end of the validity", left)
		}
		if err := context.Cause(held.Context()); !errors.Is(err, redlatch.ErrLost) || errors.Is(err, redlatch.ErrMaxHold) {
			t.Errorf("%v", err)
		}
		locks.Cut(false)
		if o := <-out; o.Err != nil {
			t.Errorf("who waited: %v", o.Err)
		}
		time.Sleep(time.Second)
		if got := slices.Sorted(maps.Keys(locks.Held())); !slices.Equal(got, []string{"free"}) {
			t.Errorf("held: %v", got)
		}
	})
}

// As soon as a client is no more cut off it can lock.
func TestCutIsOverAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		for range 3 {
			locks.Cut(true)
			if err := locks.TryDo(t.Context(), "a", func(context.Context) error { return nil }); !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("cut off: %v", err)
			}
			locks.Cut(false)
			if err := locks.TryDo(t.Context(), "a", func(context.Context) error { return nil }); err != nil {
				t.Errorf("not any more: %v", err)
			}
		}
	})
}

// An answer that is late by less than NodeTimeout is waited for; else nothing is held, and what
// was granted is undone.
func TestDelay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const timeout = 50 * time.Millisecond
		locks := New(t, redlatch.Config{NodeTimeout: timeout})
		locks.Delay(timeout / 2)
		began := time.Now()
		lock, err := locks.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != timeout {
			t.Errorf("two steps took %v", took)
		}
		locks.Delay(2 * timeout)
		began = time.Now()
		if _, err := locks.TryLock(t.Context(), "a"); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("tried: %v", err)
		}
		if took := time.Since(began); took != timeout {
			t.Errorf("a try took %v", took)
		}
		locks.Delay(0)
		time.Sleep(time.Second)
		if held := locks.Held(); len(held) > 0 {
			t.Errorf("held: %v", held)
		}
		if _, err := locks.TryLock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

// Clients of one node must agree, as on real servers; what makes no sense in memory is left out.
func TestSettings(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		config := redlatch.Config{
			Nodes: []string{"redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"}, MaxTTL: time.Minute, KeyTemplate: "lock:{name}",
			Replicas: redlatch.Replicas{Count: 1}, Durable: true,
		}
		locks := New(t, config)
		release := locks.HoldByAnother("a")
		if _, ok := locks.Held()["a"]; !ok {
			t.Errorf("held: %v", locks.Held())
		}
		release()
		locks.Lose("a")
		config.MaxTTL *= 2
		if _, err := locks.Peer(config).TryLock(t.Context(), "a"); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("another MaxTTL: %v", err)
		}
		config.MaxTTL, config.NoQuarantine = 0, true
		if _, err := New(t, config).TryLock(t.Context(), "a"); err != nil {
			t.Errorf("without the quarantine: %v", err)
		}
		if err := locks.Admit(t.Context(), nodeName); err != nil {
			t.Error(err)
		}
		if _, _, err := locks.List(t.Context(), "*"); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("List, which needs a server: %v", err)
		}
	})
}

// Package oneshot works on the client inside.
func TestOneShot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		client := oneshot.New(locks.Client)
		if ok, err := client.Take(t.Context(), "a", "id", time.Second); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, err := locks.TryLock(t.Context(), "a"); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("taken, and tried: %v", err)
		}
		if id, left, err := client.Query(t.Context(), "a"); err != nil || id != "id" || left != time.Second {
			t.Errorf("%q for %v, %v", id, left, err)
		}
		if ok, err := client.Extend(t.Context(), "a", "id", 30*time.Second); !ok || err != nil {
			t.Error(ok, err)
		}
		if ok, err := client.Release(t.Context(), "a", "id"); !ok || err != nil {
			t.Error(ok, err)
		}
	})
}

// failing is a test that was failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Fatal(...any) {
	f.failed = true
	runtime.Goexit()
}

// What cannot be done fails the test.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(t testing.TB){
		"a setting":    func(t testing.TB) { New(t, redlatch.Config{TTL: -1}) },
		"a name":       func(t testing.TB) { New(t, redlatch.Config{}).Lose("") },
		"held already": func(t testing.TB) { c := New(t, redlatch.Config{}); c.HoldByAnother("a"); c.HoldByAnother("a") },
	} {
		test, done := &failing{TB: t}, make(chan struct{})
		go func() { defer close(done); f(test) }()
		if <-done; !test.failed {
			t.Errorf("%s did not fail the test", name)
		}
	}
}
