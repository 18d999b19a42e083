package redlatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/memory"
)

// sleeping is the clock of a machine that can be made to have slept: its second clock goes on by so much, and
// its timers do not. It counts how often it is read.
type sleeping struct {
	virtual

	slept, reads atomic.Int64
}

func (s *sleeping) Now() clock.Instant {
	s.reads.Add(1)
	now := s.virtual.Now()
	now.Boot += time.Duration(s.slept.Load())
	return now
}

// sleep makes the machine have slept for d.
func (s *sleeping) sleep(d time.Duration) { s.slept.Add(int64(d)) }

// readsInAMinute returns how often the clock is read in a minute.
func (s *sleeping) readsInAMinute() int64 {
	before := s.reads.Load()
	time.Sleep(time.Minute)
	return s.reads.Load() - before
}

// openSleeping opens a client of a node in memory, on a machine that can sleep, and another on one that does not.
func openSleeping(t *testing.T, config redlatch.Config) (machine *sleeping, client, other *redlatch.Client) {
	t.Helper()
	machine = &sleeping{virtual: virtual{clock.System, time.Now()}}
	node := memory.New(time.Now)
	open := func(config redlatch.Config, c clock.Clock) *redlatch.Client {
		return locktest.OpenIn(t, config, hook.Surroundings{
			Clock: c, Nodes: []hook.Node{{Name: "a", Dial: func() driver.Conn { return node.Link().Dial() }}},
		})
	}
	return machine, open(config, machine), open(redlatch.Config{TTL: config.TTL}, machine.virtual)
}

// The client looks whether the machine has slept for as long as it holds a lock, whatever it held before, and not
// for longer.
func TestSleepIsLookedForWhileALockIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		machine, client, _ := openSleeping(t, redlatch.Config{TTL: 30 * time.Second})
		for range 2 {
			lock, err := client.TryLock(t.Context(), "name", redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan struct{})
			context.AfterFunc(lock.Context(), func() { close(told) })
			time.Sleep(time.Second)
			machine.sleep(time.Minute)
			select {
			case <-told:
			case <-time.After(time.Second):
				t.Error("the holder was not told that the lock was lost while the machine slept")
			}
			time.Sleep(time.Second)
			if n := machine.readsInAMinute(); n > 0 {
				t.Errorf("without a lock, the clock was read %d times in a minute", n)
			}
		}
	})
}

// When the machine has slept, a lock is renewed at once if that was due meanwhile, and otherwise when it is due.
func TestRenewalAfterASleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := new(locktest.Events)
		machine, client, _ := openSleeping(t, redlatch.Config{TTL: 30 * time.Second, Observer: events})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		machine.sleep(5 * time.Second)
		time.Sleep(time.Second)
		if n := len(locktest.EventsOf[redlatch.LockExtended](events)); n != 0 {
			t.Errorf("renewed %d times before that was due", n)
		}
		machine.sleep(10 * time.Second)
		time.Sleep(time.Second)
		if n := len(locktest.EventsOf[redlatch.LockExtended](events)); n != 1 {
			t.Errorf("renewed %d times after it was due", n)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A lock is looked after when the machine has slept, and not each time the client looks whether it has.
func TestLockIsLeftAloneAfterASleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		machine, client, _ := openSleeping(t, redlatch.Config{TTL: 30 * time.Minute, MaxTTL: 30 * time.Minute})
		if _, err := client.TryLock(t.Context(), "name", redlatch.WithoutRenewal()); err != nil {
			t.Fatal(err)
		}
		machine.sleep(time.Minute)
		time.Sleep(time.Second)
		if n := machine.readsInAMinute(); n > 250 { // it looks four times a second
			t.Errorf("the clock was read %d times in a minute", n)
		}
	})
}

// A lock that is lost is released when its validity is over and not before, though the machine sleeps within the
// guard: the work for it may go on until then.
func TestSleepWithinTheGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		machine, client, other := openSleeping(t, redlatch.Config{TTL: ttl})
		lock, err := client.TryLock(t.Context(), "name", redlatch.WithoutRenewal(), redlatch.WithGuard(ttl/2))
		if err != nil {
			t.Fatal(err)
		}
		for _, slept := range []time.Duration{ttl/2 - time.Second, time.Second, ttl / 2} { // the first is why it is lost
			machine.sleep(slept)
			time.Sleep(2 * time.Second)
			if err := lock.Err(); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("by now it is %v", err)
			}
			held := time.Duration(machine.slept.Load()) + time.Since(machine.start)
			_, err := other.TryLock(t.Context(), "name", redlatch.WithoutRenewal())
			if free := err == nil; free != (held > ttl) {
				t.Errorf("%v after the grant: free: %t, %v", held, free, err)
			}
		}
	})
}

// Who unlocks a lock right after a sleep that was longer than its validity is told that it was lost, before any timer has
// looked, though the node still has its key.
func TestUnlockRightAfterASleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		machine, client, other := openSleeping(t, redlatch.Config{TTL: ttl})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		machine.sleep(ttl)
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("unlock: %v", err)
		}
		next, err := other.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatalf("what was left of it is not released: %v", err)
		}
		locktest.Unlock(t, next)
	})
}
