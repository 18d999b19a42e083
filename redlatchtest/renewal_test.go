package redlatchtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// Locks that are renewed together are renewed also where others of them are unlocked all the time, and the node takes longer
// than NodeTimeout to answer.
func TestRenewalsWhileOthersAreUnlocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		hold := func(i int) *redlatch.Lock {
			lock, err := locks.TryLock(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			return lock
		}
		const kept, others = 100, 8000
		var all []*redlatch.Lock
		for i := range kept + others {
			all = append(all, hold(i))
		}
		locks.Delay(200 * time.Millisecond)
		var unlocks sync.WaitGroup
		for _, lock := range all[kept:] {
			unlocks.Go(func() { lock.Unlock(t.Context()) })
			time.Sleep(time.Millisecond)
		}
		unlocks.Wait()
		time.Sleep(4 * time.Second) // in all more than the TTL
		for _, lock := range all[:kept] {
			if err := lock.Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Close does not wait for renewals under way, whose answers may take long, and that it cuts them short is no failure that
// is observed.
func TestCloseDuringRenewals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const day = 24 * time.Hour
		events := new(locktest.Events)
		locks := New(t, redlatch.Config{TTL: day, MaxTTL: day, MaxHold: day, Observer: events})
		for i := range 10 {
			if _, err := locks.TryLock(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(7 * time.Hour) // the renewals begin after 7.1 h at the earliest, and 8.8 h at the latest
		locks.Delay(day)
		time.Sleep(110 * time.Minute) // and take two hours at most
		began := time.Now()
		locks.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if failed := locktest.EventsOf[redlatch.LockNotExtended](events); len(failed) > 0 {
			t.Errorf("observed %+v", failed)
		}
	})
}

// Locks of several names that are due at the same time are renewed with all their names: nobody gets one of these.
func TestRenewalsOfManySets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, shortTTL)
		other := locks.Peer(shortTTL)
		const sets = 32
		held := make([]*redlatch.Lock, sets)
		for i := range held {
			var err error
			if held[i], err = locks.LockAll(t.Context(), []string{fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * shortTTL.TTL)
		for _, lock := range held {
			if lock.Err() != nil {
				t.Errorf("%q: %v", lock.Names(), lock.Err())
			}
			for _, name := range lock.Names() {
				if _, err := other.TryLock(t.Context(), name); !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("another locks %q: %v", name, err)
				}
			}
		}
	})
}

// A lock is renewed before it counts as lost, also where its guard takes up most of its TTL.
func TestRenewalBeforeALongGuard(t *testing.T) {
	for _, guard := range []time.Duration{0, 6 * time.Second, 15 * time.Second, 19 * time.Second, 20 * time.Second, 28 * time.Second} {
		t.Run(fmt.Sprint(guard), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				locks := New(t, redlatch.Config{})
				lock, err := locks.TryLock(t.Context(), "name", redlatch.WithTTL(30*time.Second), redlatch.WithGuard(guard))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute)
				if err := lock.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A lock is renewed in time also where the nodes took most of its TTL to grant it.
func TestRenewalAfterASlowGrant(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{NodeTimeout: time.Second})
		locks.Delay(900 * time.Millisecond)
		lock, err := locks.TryLock(t.Context(), "name", redlatch.WithTTL(1500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		locks.Delay(0)
		time.Sleep(time.Minute)
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
	})
}
