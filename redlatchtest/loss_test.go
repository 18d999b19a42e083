package redlatchtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// A caller of the same client gets a lock as soon as it was lost, though its former holder works on until the end of the
// validity and does not look.
func TestNextAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		lock, err := locks.TryLock(t.Context(), "a", redlatch.WithTTL(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		lost := time.Now().Add(time.Second)
		time.AfterFunc(time.Second, func() { locks.Lose("a") })
		next, err := locks.Lock(t.Context(), "a")
		if took := time.Since(lost); err != nil || took > time.Second {
			t.Fatalf("after %v: %v", took, err)
		}
		if next.Err() != nil || !errors.Is(lock.Err(), redlatch.ErrLost) || next.Token() <= lock.Token() {
			t.Errorf("the next, under %d: %v; the last, under %d: %v", next.Token(), next.Err(), lock.Token(), lock.Err())
		}
	})
}

// A lock is renewed when a third of its TTL is over, and not before.
func TestFirstRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		const ttl = 30 * time.Second
		lock, err := locks.Lock(t.Context(), "a", redlatch.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		until := lock.Until()
		time.Sleep(ttl / 4)
		if !lock.Until().Equal(until) {
			t.Errorf("renewed within %v, by %v", ttl/4, lock.Until().Sub(until))
		}
		time.Sleep(ttl / 4)
		if !lock.Until().After(until) {
			t.Errorf("not renewed within %v", ttl/2)
		}
	})
}

// A permit is lost by its name in Held, like a lock: its holder learns it at once, who waits gets it, and nobody else loses
// anything.
func TestPermitIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, template := range []string{"", "jobs:{name}:lock"} {
			config := redlatch.Config{KeyTemplate: template, TTL: 30 * time.Second}
			locks := New(t, config)
			var held []*redlatch.Lock
			for range 2 {
				lock, err := locks.Acquire(t.Context(), "pool", 2)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, lock)
			}
			got := make(chan *redlatch.Lock, 1)
			go func() {
				lock, err := locks.Peer(config).Acquire(t.Context(), "pool", 2)
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			synctest.Wait()
			start := time.Now()
			locks.Lose(fmt.Sprintf("pool#%d", held[1].Slot()))
			if err := context.Cause(held[1].Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Fatalf("%q: its context: %v", template, err)
			}
			if next := <-got; next.Slot() != held[1].Slot() || time.Since(start) > time.Second || held[0].Err() != nil {
				t.Errorf("%q: after %v slot %d, want %d; the other permit: %v", template, time.Since(start), next.Slot(), held[1].Slot(), held[0].Err())
			}
		}
		// A lock of such a name comes first.
		locks := New(t, redlatch.Config{})
		permit, err1 := locks.Acquire(t.Context(), "pool", 1)
		lock, err2 := locks.TryLock(t.Context(), "pool#0")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if locks.Lose("pool#0"); !errors.Is(lock.Err(), redlatch.ErrLost) || permit.Err() != nil {
			t.Errorf("the lock: %v, the permit: %v", lock.Err(), permit.Err())
		}
	})
}

// The node says that it does not hold the lock any more to an extension whose caller has left. Who looks then finds the
// lock lost.
func TestLossThatNobodyWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{NodeTimeout: time.Second})
		lock, err := locks.TryLock(t.Context(), "a", redlatch.WithTTL(30*time.Second), redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		locks.server.node.Delete("a", locks.server.node.Keys()["a"].Holder, "a")
		locks.Delay(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := lock.Extend(ctx, 30*time.Second); !errors.Is(err, context.DeadlineExceeded) || lock.Err() != nil {
			t.Fatalf("extended: %v; the lock: %v", err, lock.Err())
		}
		time.Sleep(100 * time.Millisecond)
		if err := lock.Err(); !errors.Is(err, redlatch.ErrLost) || !errors.Is(context.Cause(lock.Context()), redlatch.ErrLost) {
			t.Errorf("the lock: %v; its context: %v", err, context.Cause(lock.Context()))
		}
	})
}

// A lock whose key is lost while the grant is on its way is found lost by its renewal.
func TestLossBeforeTheGrantArrives(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{TTL: 10 * time.Second})
		locks.Delay(20 * time.Millisecond)
		granted := locktest.LockIn(t.Context(), locks, "x")
		synctest.Wait()
		locks.Lose("x")
		o := <-granted
		if o.Err != nil || o.Lock.Err() != nil {
			t.Fatal(o.Err)
		}
		<-o.Lock.Context().Done()
		if left := time.Until(o.Lock.Until()); left < 5*time.Second || !errors.Is(o.Lock.Err(), redlatch.ErrLost) {
			t.Errorf("%v, %v before its end", o.Lock.Err(), left)
		}
	})
}

// stuckLog is a log that does not come back, until it may, once it is told that a lock was lost.
type stuckLog struct{ may chan struct{} }

func (stuckLog) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		<-h.may
	}
	return nil
}

func (h stuckLog) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h stuckLog) WithGroup(string) slog.Handler { return h }

// A log that is stuck when a renewal has found a lock lost keeps the client from renewing no others, such as
// those that were renewed together with it.
func TestLossThatTheLogIsStuckWith(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		may := make(chan struct{})
		locks := New(t, redlatch.Config{TTL: 3 * time.Second, Logger: slog.New(stuckLog{may})})
		const lost = "200"
		// Renewals are due at random times. Of so many, some are renewed with that lock, and booked behind it.
		held := make(map[string]*redlatch.Lock)
		for i := range 400 {
			name := fmt.Sprint(i)
			lock, err := locks.TryLock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			held[name] = lock
		}
		locks.server.node.Delete(lost, locks.server.node.Keys()[lost].Holder, lost)
		time.Sleep(time.Minute)
		ended := 0
		for name := range held {
			if _, is := locks.server.node.Keys()[name]; name != lost && !is {
				ended++
			}
		}
		if ended > 0 {
			t.Errorf("%d others were not renewed", ended)
		}
		close(may)
	})
}
