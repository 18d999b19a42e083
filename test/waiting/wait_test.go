package waiting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Who waits has the lock when it is released, long before its TTL is over, with
// a larger token.
func TestLockWaitsForTheRelease(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3, 5} {
			c := locktest.Config(redistest.URLs(locktest.SharedOf(t, binary, n))...)
			name := fmt.Sprintf("%s/%d", t.Name(), n)
			first := locktest.TryLock(t, locktest.Open(t, c), name)
			var told atomic.Pointer[redlatch.QuorumError]
			report, waits := locktest.WhenWaiting(func(err error) {
				failure, _ := errors.AsType[*redlatch.QuorumError](err)
				told.Store(failure)
			})
			out := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.Open(t, c), name, report)
			<-waits
			if failure := told.Load(); failure == nil || !errors.Is(failure, redlatch.ErrHeld) {
				t.Errorf("what was reported while waiting is %v", failure)
			}
			select {
			case o := <-out:
				t.Fatalf("it did not wait: %v, %v", o.Lock, o.Err)
			default:
			}
			start := time.Now()
			locktest.Unlock(t, first)
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			t.Logf("N=%d: had %v after the release", n, time.Since(start).Round(time.Microsecond))
			if o.Lock.Token() <= first.Token() {
				t.Errorf("token %d follows %d", o.Lock.Token(), first.Token())
			}
			locktest.Unlock(t, o.Lock)
		}
	})
}

// Who waits has the lock when its holder's TTL is over.
func TestLockWaitsForTheExpiry(t *testing.T) {
	t.Parallel()
	c := locktest.Config(redistest.URLs(locktest.Shared(t, 3))...)
	first := locktest.TryLock(t, locktest.Open(t, c), t.Name(), redlatch.WithTTL(400*time.Millisecond), redlatch.WithoutRenewal())
	second, err := locktest.Open(t, c).Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(first.Err(), redlatch.ErrLost) {
		t.Errorf("the first lock is %v", first.Err())
	}
	if err := first.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("the first one's unlock: %v", err)
	}
	if second.Err() != nil {
		t.Errorf("the second lock is %v", second.Err())
	}
	locktest.Unlock(t, second)
}

// The error says who holds the lock, since when, and for how long still.
func TestHeldTellsOfTheHolder(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		c := locktest.Config(redistest.URLs(nodes)...)
		c.Label = "the first: a.b, ü"
		client, other := locktest.Open(t, c), locktest.Open(t, c)
		start := time.Now()
		for _, label := range []string{"", "the job's own"} {
			var options []redlatch.Option
			want := c.Label
			if label != "" {
				options, want = append(options, redlatch.WithLabel(label)), label
			}
			lock := locktest.TryLock(t, client, t.Name(), options...)
			var err error
			var holder redlatch.Holder
			var left time.Duration
			ok := false
			// A node may still have the key before, whose release is on its way.
			locktest.Await(t, "the holder is told", func() bool {
				_, err = other.TryLock(t.Context(), t.Name())
				if locktest.Late(err) {
					return false
				}
				if !errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrNoQuorum) {
					t.Fatalf("%v", err)
				}
				holder, left, ok = locktest.FailureOf(t, err).Holder()
				return holder.Label == want
			})
			if !ok || holder.Label != want || left <= 0 || left > locktest.TTL {
				t.Errorf("holder %+v, %v left, %t", holder, left, ok)
			}
			if d := holder.Since.Sub(start); d < -time.Second || d > locktest.Patience {
				t.Errorf("held since %v, it is %v", holder.Since, time.Now())
			}
			if !slices.ContainsFunc(nodes, func(s *redistest.Server) bool { return locktest.Value(t, s, t.Name()) == holder.ID }) {
				t.Errorf("no node has %q", holder.ID)
			}
			if text := err.Error(); !strings.Contains(text, want) || !strings.Contains(text, t.Name()) || !strings.Contains(text, "held by another") {
				t.Errorf("the text tells less: %s", text)
			}
			locktest.Unlock(t, lock)
		}
		// Nobody is told of a holder where there is none.
		if _, _, ok := (&redlatch.QuorumError{}).Holder(); ok {
			t.Error("a holder of nothing")
		}
	})
}

// Ctx ends the waiting. Its cause comes with what stood in the way.
func TestCtxEndsTheWaiting(t *testing.T) {
	t.Parallel()
	c := locktest.Config(redistest.URLs(locktest.Shared(t, 3))...)
	holder, other := locktest.Open(t, c), locktest.Open(t, c)
	lock := locktest.TryLock(t, holder, t.Name())
	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	report, waits := locktest.WhenWaiting(nil)
	out := locktest.LockIn(ctx, other, t.Name(), report)
	<-waits
	cancel(cause)
	o := <-out
	if o.Lock != nil || !errors.Is(o.Err, cause) || !errors.Is(o.Err, redlatch.ErrHeld) {
		t.Errorf("%v, %v", o.Lock, o.Err)
	}
	if holder, _, ok := locktest.FailureOf(t, o.Err).Holder(); !ok || holder.ID == "" {
		t.Errorf("the holder is not told: %v", o.Err)
	}

	if err := endedByDeadline(t, other, t.Name()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("%v", err)
	}
	// With a ctx that is done nothing is tried.
	if _, err := other.Lock(ctx, t.Name()+"/free"); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	if _, err := other.TryLock(ctx, t.Name()+"/free"); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	locktest.Unlock(t, lock)
}

// endedByDeadline has ctx end a Lock by its deadline, which leaves time for a whole try: on a
// busy machine that is found by trying.
func endedByDeadline(t *testing.T, c *redlatch.Client, name string, options ...redlatch.Option) (err error) {
	t.Helper()
	for d := 50 * time.Millisecond; d < locktest.Patience; d *= 2 {
		tried := false
		report := redlatch.WithWaitReport(func(error) { tried = true })
		var lock *redlatch.Lock
		if lock, err = c.Lock(locktest.Within(t, d), name, append(options, report)...); lock != nil {
			t.Fatal("it is held")
		}
		if tried {
			break
		}
	}
	return err
}

// Ctx ends while the free lock is kept for another client, which does not take it: that is what stands in the way.
func TestCtxEndsBehindAWaiter(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 1)
	proxy := redistest.Proxies(t, nodes)[0]
	c := locktest.Config(nodes[0].URL())
	locktest.Await(t, "it is told of the waiter", func() bool { // a busy machine may be late
		holder, other := locktest.Open(t, c), locktest.Open(t, locktest.Through(c, proxy.URL()))
		lock := locktest.TryLock(t, holder, t.Name())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out := locktest.LockIn(ctx, other, t.Name())
		locktest.Await(t, "it is queued", func() bool {
			return locktest.Do(t, nodes[0], "EXISTS", queueKey(t.Name())).(int64) == 1
		})
		proxy.HoldBack(redistest.Replies, true)
		locktest.Unlock(t, lock)
		mine, err := holder.Lock(locktest.Within(t, 100*time.Millisecond), t.Name())
		cancel()
		proxy.HoldBack(redistest.Replies, false)
		late := errors.Is(err, redlatch.ErrNoQuorum) // the lock was free for it by then, and the ctx ended amid the try
		if mine != nil {
			locktest.Unlock(t, mine)
		} else if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redlatch.ErrHeld) && !late {
			t.Errorf("%v", err)
		}
		if o := <-out; o.Err == nil {
			locktest.Unlock(t, o.Lock)
		}
		return mine == nil && !late
	})
}

// Ctx ends while a try is under way that nobody answers: what stood in the way
// is what the last whole try found.
func TestCtxEndsATry(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			const tries = 20 // a busy machine's try may end before ctx does, but not each time
			for try := 1; ; try++ {
				err := endedInATry(t, n, fmt.Sprintf("%s/%d", t.Name(), try))
				if errors.Is(err, context.Canceled) && errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrNoQuorum) {
					return
				}
				if !errors.Is(err, redlatch.ErrNoQuorum) || try == tries {
					t.Fatal(err)
				}
			}
		})
	}
}

// endedInATry returns the error of a Lock whose ctx ended while nobody answered a try of it.
func endedInATry(t *testing.T, n int, name string) error {
	nodes := locktest.Shared(t, n)
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	for _, s := range nodes {
		locktest.Do(t, s, "SET", name, "theirs", "PX", "60000")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	under := make(chan int, 1)
	out := locktest.LockIn(ctx, client, name, redlatch.WithWaitReport(func(error) {
		// Between two tries.
		once.Do(func() {
			for _, p := range proxies {
				p.HoldBack(redistest.Replies, true)
			}
			under <- proxies[0].Commands()["EVALSHA"]
		})
	}))
	if err := proxies[0].AwaitCommand(locktest.Within(t, locktest.Patience), "EVALSHA", <-under+1); err != nil {
		t.Fatal(err)
	}
	cancel()
	o := <-out
	for i, s := range nodes {
		proxies[i].HoldBack(redistest.Replies, false)
		locktest.AwaitValue(t, s, name, "theirs")
		locktest.Do(t, s, "DEL", name)
	}
	return o.Err
}

// No quorum of nodes can be reached: Lock waits for them, too, and tells of
// each when ctx ends.
func TestLockWaitsForNodes(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	client := locktest.Open(t, c)
	for _, p := range proxies[:2] {
		if err := p.Refuse(true); err != nil {
			t.Fatal(err)
		}
		p.Cut()
	}
	if err := endedByDeadline(t, client, t.Name()); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrHeld) || !strings.Contains(err.Error(), "n0") {
		t.Errorf("%v", err)
	}
	report, waits := locktest.WhenWaiting(nil)
	out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), report)
	<-waits
	for _, p := range proxies[:2] {
		if err := p.Refuse(false); err != nil {
			t.Fatal(err)
		}
	}
	o := <-out
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	locktest.Unlock(t, o.Lock)
}

// Many callers in several clients: each has it once, one at a time.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := locktest.Config(redistest.URLs(locktest.SharedOf(t, binary, 3))...)
		var inside, most atomic.Int32
		var last atomic.Uint64
		unguarded := 0 // -race tells if it is not
		var group sync.WaitGroup
		for range 3 {
			client := locktest.Open(t, c)
			for range 4 {
				group.Go(func() {
					for range 3 {
						err := client.Do(locktest.Within(t, locktest.Patience), t.Name(), func(ctx context.Context) error {
							if n := inside.Add(1); n > most.Load() {
								most.Store(n)
							}
							unguarded++
							if lock, held := redlatch.Held(ctx, t.Name()); held && lock.Token() <= last.Swap(lock.Token()) {
								t.Errorf("token %d does not follow", lock.Token())
							}
							inside.Add(-1)
							return ctx.Err()
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		lock := locktest.TryLock(t, locktest.Open(t, c), t.Name())
		if most.Load() != 1 || unguarded != 3*4*3 || lock.Token() <= last.Load() {
			t.Errorf("%d at once, %d in all", most.Load(), unguarded)
		}
		locktest.Unlock(t, lock)
	})
}

// Reports come at once and then about once a second, from the goroutine that
// waits.
func TestWaitReport(t *testing.T) {
	t.Parallel()
	c := locktest.Config(redistest.URLs(locktest.Shared(t, 1))...)
	client := locktest.Open(t, c)
	lock, other := locktest.TryLock(t, client, t.Name()), locktest.Open(t, c)
	const tries = 20 // a busy machine's reports, or the tries that they are of, may be late, but not each time
	for try := 1; ; try++ {
		var times []time.Duration // no lock: one goroutine
		start, held := time.Now(), true
		_, err := other.Lock(locktest.Within(t, 2500*time.Millisecond), t.Name(), redlatch.WithWaitReport(func(err error) {
			times = append(times, time.Since(start))
			held = held && errors.Is(err, redlatch.ErrHeld)
		}))
		right := held && errors.Is(err, redlatch.ErrHeld) && len(times) >= 1 && len(times) <= 3
		for i := 1; i < len(times); i++ {
			right = right && times[i]-times[i-1] >= time.Second
		}
		if right {
			break
		}
		if try == tries {
			t.Errorf("reported after %v, that it is held each time %t; then %v", times, held, err)
			break
		}
	}
	locktest.Unlock(t, lock)
}
