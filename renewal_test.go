package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/redlatchtest"
)

// A lock that seems to end, and is extended before the client has looked into that, goes on being
// renewed.
func TestExtendedJustBeforeItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{TTL: 3 * time.Second})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		redlatch.RingInVain(lock)
		time.Sleep(time.Minute)
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that comes due while the holder extends the lock itself is left out, and not observed as a failure.
func TestRenewalDuringExtend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := new(locktest.Events)
		const ttl = 3 * time.Second
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl, NodeTimeout: time.Second, Observer: events})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(800 * time.Millisecond)
		client.Delay(900 * time.Millisecond) // a renewal is due meanwhile, after a third of the TTL
		if err := lock.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if n := len(locktest.EventsOf[redlatch.LockNotExtended](events)); n > 0 {
			t.Errorf("%d extensions were observed as failed", n)
		}
		client.Delay(0)
		time.Sleep(time.Minute) // it goes on being renewed
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slowFor is an Observer that does not come back, until it may, once it is told that the lock with that
// name was extended.
type slowFor struct {
	name string
	may  chan struct{}
}

func (s slowFor) Observe(_ context.Context, event redlatch.Event) {
	if e, ok := event.(redlatch.LockExtended); ok && e.Name == s.name {
		<-s.may
	}
}

// An Observer that is slow about one lock keeps the client from renewing that lock, and not those that
// were renewed together with it.
func TestSlowObserverOfOneLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = "200"
		may := make(chan struct{})
		client := redlatchtest.New(t, redlatch.Config{TTL: 3 * time.Second, Observer: slowFor{slow, may}})
		// Renewals are due at random times. Of so many, some are renewed with that lock, and booked behind it.
		locks := make(map[string]*redlatch.Lock)
		for i := range 400 {
			name := fmt.Sprint(i)
			lock, err := client.TryLock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			locks[name] = lock
		}
		time.Sleep(time.Minute)
		for name, lock := range locks {
			if err := lock.Err(); (name == slow) != errors.Is(err, redlatch.ErrLost) {
				t.Errorf("lock %s: %v", name, err)
			}
		}
		close(may)
	})
}

// Extend of a lock that ends while no node answers says that it has ended: the lock is not held for as long as before.
func TestExtendOfALockThatEnds(t *testing.T) {
	t.Parallel()
	const ttl, nodeTimeout = 3 * time.Second, time.Second
	for name, test := range map[string]struct {
		at   time.Duration // when the extension begins
		end  func(*redlatch.Lock)
		want error
	}{
		"released": {0, func(l *redlatch.Lock) { _ = l.Unlock(context.Background()) }, redlatch.ErrReleased},
		"detached": {0, func(l *redlatch.Lock) { _, _ = l.Detach() }, redlatch.ErrReleased},
		"lost":     {ttl / 2, func(*redlatch.Lock) {}, redlatch.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				events := new(locktest.Events)
				client := redlatchtest.New(t, redlatch.Config{TTL: ttl, NodeTimeout: nodeTimeout, Observer: events})
				lock, err := client.TryLock(t.Context(), "name", redlatch.WithoutRenewal(), redlatch.WithGuard(ttl/3))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.at)
				client.Delay(time.Minute)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					time.Sleep(nodeTimeout / 2)
					test.end(lock)
				}()
				if err := lock.Extend(t.Context(), ttl); !errors.Is(err, test.want) {
					t.Errorf("extend: %v", err)
				}
				if n := len(locktest.EventsOf[redlatch.LockNotExtended](events)); n > 0 {
					t.Errorf("%d extensions of a lock that has ended were observed as failed", n)
				}
				client.Delay(0)
				<-ended
			})
		})
	}
}

// A holder is told in time, though the goroutine that has set the alarm was stopped between reading the
// clock and setting it.
func TestAlarmSetLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		client := redlatchtest.New(t, redlatch.Config{})
		lock, err := client.TryLock(t.Context(), "name", redlatch.WithoutRenewal(), redlatch.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan time.Duration, 1)
		context.AfterFunc(lock.Context(), func() { told <- time.Since(lock.Until()) })
		redlatch.RingLate(lock, ttl/2)
		if late := <-told; late > 0 {
			t.Errorf("told %v after the end of the validity", late)
		}
	})
}

// toldLate is an Observer that counts the holders that were told after the client had begun to release
// what others of so many have lost.
type toldLate struct {
	client *redlatchtest.Client
	locks  int
	n      atomic.Int64
}

func (o *toldLate) Observe(_ context.Context, event redlatch.Event) {
	if _, ok := event.(redlatch.LockLost); ok && o.client.Stats().Held < o.locks {
		o.n.Add(1)
	}
}

// Where the validity of many locks is over when their alarms ring, as in a process that was stopped, all holders
// are told before what is left of the locks is released: that takes long, and each may still be at work.
func TestHoldersAreToldFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const locks, ttl = 300, 3 * time.Second
		late := &toldLate{locks: locks}
		client := redlatchtest.New(t, redlatch.Config{Observer: late})
		late.client = client
		for i := range locks {
			if _, err := client.TryLock(t.Context(), fmt.Sprint(i), redlatch.WithTTL(ttl), redlatch.WithGuard(0), redlatch.WithoutRenewal()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * ttl)
		if stats := client.Stats(); stats.Lost != locks || stats.Held != 0 {
			t.Errorf("%d were lost, and %d are held", stats.Lost, stats.Held)
		}
		if n := late.n.Load(); n > 0 {
			t.Errorf("%d holders were told after others' locks were released", n)
		}
	})
}

// Where more locks are lost at once than the client releases at once, and the nodes are slow, the rest is released later.
func TestManyLostOnASlowNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const locks, ttl = redlatch.MaxReleases + 50, 3 * time.Second
		client := redlatchtest.New(t, redlatch.Config{NodeTimeout: time.Second})
		for i := range locks {
			if _, err := client.TryLock(t.Context(), fmt.Sprint(i), redlatch.WithTTL(ttl), redlatch.WithoutRenewal()); err != nil {
				t.Fatal(err)
			}
		}
		client.Delay(500 * time.Millisecond)
		time.Sleep(ttl + 10*time.Second)
		if stats := client.Stats(); stats.Lost != locks || stats.Held != 0 {
			t.Errorf("%d were lost, and %d are held", stats.Lost, stats.Held)
		}
	})
}

// A lock that is kept for WithMinHold is looked after when that is over, also where an alarm comes before, as after the
// machine has slept.
func TestKeptUntilTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const hold = 2 * time.Second
		client := redlatchtest.New(t, redlatch.Config{})
		lock, err := client.TryLock(t.Context(), "name", redlatch.WithMinHold(hold))
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		redlatch.RingInVain(lock)
		time.Sleep(hold - time.Millisecond)
		if held := client.Held(); len(held) != 1 {
			t.Errorf("before the end: %v", held)
		}
		time.Sleep(10 * time.Millisecond)
		if held := client.Held(); len(held) > 0 {
			t.Errorf("after it: %v", held)
		}
	})
}

// A holder asks to extend its lock over and over, each time for less long than the nodes take. The rounds go
// on without it, so that the lock is held for as long as the nodes answer.
func TestExtendThatDoesNotWaitForTheNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl, NodeTimeout: 500 * time.Millisecond})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		client.Delay(100 * time.Millisecond)
		for start := time.Now(); time.Since(start) < time.Minute; {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := lock.Extend(ctx, ttl); errors.Is(err, redlatch.ErrLost) {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			<-ctx.Done()
			cancel()
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The error of a lock that was lost because nobody extended it says what the nodes answered, and why
// that was. It is an error of the loss alone: errors.Is finds no ErrNoQuorum in it.
func TestLossSaysWhyItWasNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{TTL: 3 * time.Second})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		client.Cut(true)
		<-lock.Context().Done()
		why := context.Cause(lock.Context())
		if !errors.Is(why, redlatch.ErrLost) || errors.Is(why, redlatch.ErrNoQuorum) {
			t.Errorf("the kind of %v", why)
		}
		if !strings.Contains(why.Error(), `the last renewal failed: extend "name": no quorum: 0 of 1 nodes said yes`) {
			t.Errorf("it does not say why: %v", why)
		}
	})
}

// renewals is an Observer that notes when a lock was extended, and when it was not.
type renewals struct {
	mu             sync.Mutex
	done, failures []time.Time
}

func (r *renewals) Observe(_ context.Context, event redlatch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch event.(type) {
	case redlatch.LockExtended:
		r.done = append(r.done, time.Now())
	case redlatch.LockNotExtended:
		r.failures = append(r.failures, time.Now())
	}
}

// take returns what was noted since the last call.
func (r *renewals) take() (done, failures []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done, failures = r.done, r.failures
	r.done, r.failures = nil, nil
	return done, failures
}

// A lock is renewed after a third of its TTL, give or take a tenth of that. A renewal that fails is tried again after a
// quarter of that time, over and over until the lock counts as lost. When one has succeeded, all is as before.
func TestPaceOfRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, usual = 3 * time.Second, time.Second
		seen := &renewals{}
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl, Observer: seen})
		start := time.Now()
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		// apart checks the times from start on. A renewal may come a hundredth of the usual time earlier, to be made
		// together with others.
		apart := func(what string, start time.Time, times []time.Time, mean time.Duration) {
			t.Helper()
			for _, at := range times {
				if d := at.Sub(start); d < mean-mean/10-usual/100 || d > mean+mean/10+time.Millisecond {
					t.Fatalf("%s after %v, not about %v", what, d, mean)
				}
				start = at
			}
		}
		for range 3 {
			time.Sleep(time.Minute)
			done, failures := seen.take()
			if len(done) < 50 || len(failures) > 0 {
				t.Fatalf("%d renewals in a minute, and %d that failed", len(done), len(failures))
			}
			apart("renewed", start, done, usual)

			client.Cut(true)
			// Until 1.2 to 2.3 s after the last renewal: the next is due, and there is time to try once more
			// after that before the lock counts as lost, 2.67 s after it.
			time.Sleep(usual + usual/5)
			client.Cut(false)
			time.Sleep(usual / 3)
			start = done[len(done)-1]
			done, failures = seen.take()
			if len(failures) == 0 || len(done) != 1 {
				t.Fatalf("%d renewals failed, and %d did not", len(failures), len(done))
			}
			apart("the first failed", start, failures[:1], usual)
			apart("tried again", failures[0], append(failures[1:], done...), usual/4)
			start = done[0]
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A lost lock is looked after until its validity is over, also where an alarm comes before, as after the machine has slept:
// then the client forgets it.
func TestLostLockIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, guard = 3 * time.Second, time.Second
		client := redlatchtest.New(t, redlatch.Config{})
		lock, err := client.TryLock(t.Context(), "name", redlatch.WithTTL(ttl), redlatch.WithGuard(guard), redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		<-lock.Context().Done()
		redlatch.RingInVain(lock)
		if held := client.Stats().Held; held != 1 {
			t.Errorf("before the end of the validity, %d locks are looked after", held)
		}
		time.Sleep(guard + 10*time.Millisecond)
		if held := client.Stats().Held; held != 0 {
			t.Errorf("after it, %d locks are looked after", held)
		}
	})
}

// A lock that runs out because an extension was refused for MaxHold says so.
func TestExtensionRefusedForMaxHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		lock, err := client.Lock(t.Context(), "job", redlatch.WithoutRenewal(), redlatch.WithMaxHold(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if err := lock.Extend(t.Context(), 10*time.Second); !errors.Is(err, redlatch.ErrMaxHold) {
			t.Errorf("extended: %v", err)
		}
		<-lock.Context().Done()
		if err := lock.Err(); !errors.Is(err, redlatch.ErrLost) || !errors.Is(err, redlatch.ErrMaxHold) {
			t.Errorf("it ran out: %v", err)
		}
	})
}
