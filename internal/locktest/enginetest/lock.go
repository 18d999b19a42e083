package enginetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// OneHolder tests that a lock that one holds, another cannot have until it is released.
func (e Engine) OneHolder(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 2, Patient)
	held := Lock(t, c[0], "name with / and ü")
	if _, err := locktest.TryInTime(t, c[1], "name with / and ü"); !errors.Is(err, redlatch.ErrHeld) {
		t.Fatalf("another: %v, want ErrHeld", err)
	} else if failure, ok := errors.AsType[*redlatch.QuorumError](err); ok {
		if holder, left, ok := failure.Holder(); !ok || holder.Label == "" || left <= 0 || left > Patient.TTL {
			t.Errorf("the error says %v, %v left, %v", holder, left, ok)
		}
	}
	if other, err := locktest.TryInTime(t, c[1], "other"); err != nil {
		t.Error(err)
	} else {
		Unlock(t, other)
	}
	Extend(t, held)
	Unlock(t, held)
	if err := held.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("unlocked again: %v", err)
	}
	again, err := locktest.TryInTime(t, c[1], "name with / and ü")
	if err != nil {
		t.Fatal("after the release: ", err)
	}
	Unlock(t, again)
}

// Exclusion has many callers of several clients count without losing a count, under growing tokens.
func (e Engine) Exclusion(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 3, Patient)
	var callers sync.WaitGroup
	ctx := Within(t, 2*Patience)
	inside, count := 0, 0
	var last uint64
	for i := range 12 {
		callers.Go(func() {
			for range 8 {
				held, err := c[i%len(c)].Lock(ctx, "counter")
				if err != nil {
					t.Error(err)
					return
				}
				inside++ // the race detector sees two holders, too
				if inside != 1 {
					t.Error("two are inside")
				}
				if held.Token() <= last {
					t.Errorf("the token %d after %d", held.Token(), last)
				}
				last = held.Token()
				count++
				inside--
				if err := held.Unlock(ctx); err != nil && !late(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	if count != 12*8 {
		t.Errorf("counted %d", count)
	}
	// Those of Redis go with the clock. Programs may move here long after the first of them made the root.
	if redis := uint64(time.Now().AddDate(9, 0, 0).UnixMicro()); last < redis || last >= 1<<53 {
		t.Errorf("the token %d is not above those of Redis, which are %d in nine years", last, redis)
	}
}

// Order tests that those who wait have the lock in the order in which they came.
func (e Engine) Order(t *testing.T) {
	t.Parallel()
	const n = 5
	c := e.clients(t, n+1, Patient)
	held := Lock(t, c[n], "name")
	waiting := make([]<-chan Outcome, n)
	for i := range waiting {
		waiting[i] = LockIn(t, c[i], "name")
		awaitWaiters(t, c[n], "name", i+1)
	}
	Unlock(t, held)
	for i, out := range waiting {
		got := <-out
		for j := i + 1; j < n; j++ {
			select {
			case other := <-waiting[j]:
				t.Errorf("%d has it before %d, or while that does: %v", j, i, other.Err)
			default:
			}
		}
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		Unlock(t, got.Lock)
	}
}

// WakeUp tests that a waiter is woken up: it does not wait for a poll, nor for the TTL.
func (e Engine) WakeUp(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 2, Patient)
	fastest := time.Hour
	for try := 0; try < 20 && fastest > time.Second; try++ { // polls are 1.5 s apart and more
		held := Lock(t, c[0], "name")
		out := LockIn(t, c[1], "name")
		start := time.Now()
		Unlock(t, held)
		got := <-out
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		fastest = min(fastest, got.At.Sub(start))
		Unlock(t, got.Lock)
	}
	if fastest > time.Second {
		t.Errorf("the fastest of 20 took %v", fastest)
	}
}

// ExtendNeverShortens tests that an extension by less than what is left changes nothing.
func (e Engine) ExtendNeverShortens(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 2, Config)
	held := Lock(t, c[0], "name", redlatch.WithoutRenewal())
	until := held.Until()
	if err := held.Extend(t.Context(), 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if held.Until().Before(until) {
		t.Error("it is shorter for the holder")
	}
	got := <-LockIn(t, c[1], "name")
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if early := until.Sub(got.At); early > 0 {
		t.Errorf("another has it %v before the end", early)
	}
	Unlock(t, got.Lock)
}

// Renewal tests that a lock is held for longer than its TTL.
func (e Engine) Renewal(t *testing.T) {
	t.Parallel()
	servers, root := e.Common(t), Root(t)
	held := Lock(t, e.open(t, renewed, servers, root), "name")
	out := LockIn(t, e.open(t, renewed, servers, root), "name")
	select {
	case got := <-out:
		t.Fatalf("another has a lock that is renewed: %v", got.Err)
	case <-time.After(renewedTTL * 3 / 2):
	}
	if err := held.Err(); err != nil {
		t.Fatal(err)
	}
	Unlock(t, held)
	if got := <-out; got.Err != nil {
		t.Error(got.Err)
	} else {
		Unlock(t, got.Lock)
	}
}

// Takeover tests that a holder that does not renew is followed by a waiter that has watched the lease for a TTL.
func (e Engine) Takeover(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 2, Config)
	held := Lock(t, c[0], "name", redlatch.WithoutRenewal())
	out := LockIn(t, c[1], "name")
	got := <-out
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if early := held.Until().Sub(got.At); !errors.Is(held.Err(), redlatch.ErrLost) || early > 0 || got.Lock.Token() <= held.Token() {
		t.Errorf("the first says %v; the second has it %v before the end of its validity; tokens %d and %d", held.Err(), early, held.Token(), got.Lock.Token())
	}
	Unlock(t, got.Lock)
}

// Cancel tests that who stops waiting leaves nothing behind, and those behind it go on.
func (e Engine) Cancel(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 3, Patient)
	held := Lock(t, c[0], "name")
	ctx, cancel := context.WithCancel(t.Context())
	out, waits := make(chan error, 1), make(chan struct{})
	found := sync.OnceFunc(func() { close(waits) })
	go func() {
		_, err := c[1].Lock(ctx, "name", redlatch.WithWaitReport(func(err error) {
			if errors.Is(err, redlatch.ErrHeld) {
				found()
			}
		}))
		out <- err
	}()
	<-waits
	behind := LockIn(t, c[2], "name")
	cancel()
	if err := <-out; !errors.Is(err, context.Canceled) || !errors.Is(err, redlatch.ErrHeld) {
		t.Fatal(err)
	}
	Unlock(t, held)
	got := <-behind
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	Unlock(t, got.Lock)
	for i := range 30 { // tries that are cancelled at any moment
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		if l, err := c[i%3].Lock(ctx, "name"); err == nil {
			Unlock(t, l)
		}
		cancel()
	}
	Await(t, "nothing is left", func() bool {
		l, err := c[0].TryLock(t.Context(), "name")
		if err == nil {
			Unlock(t, l)
		}
		return err == nil
	})
}

// MinHoldOutlastsClose tests that a lock is kept for WithMinHold though its client is closed.
func (e Engine) MinHoldOutlastsClose(t *testing.T) {
	t.Parallel()
	const hold = TTL * 9 / 10
	c := e.clients(t, 2, Config)
	start := time.Now()
	if err := c[0].TryDo(t.Context(), "job", func(context.Context) error { return nil }, redlatch.WithMinHold(hold)); err != nil {
		t.Fatal(err)
	}
	if err := c[0].Close(); err != nil {
		t.Error(err)
	}
	for deadline := start.Add(locktest.Patience); ; {
		l, err := locktest.TryInTime(t, c[1], "job")
		if err == nil {
			if early := hold - time.Since(start); early > 0 {
				t.Errorf("another has it %v before", early)
			}
			Unlock(t, l)
			return
		}
		// On a busy machine, the other client's session may have to be confirmed.
		if !errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrNoQuorum) || time.Now().After(deadline) {
			t.Fatalf("%v after the start: %v", time.Since(start), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// CloseReleases tests that a client that is closed has released what it held.
func (e Engine) CloseReleases(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 2, Patient)
	Lock(t, c[0], "name")
	if err := c[0].Close(); err != nil {
		t.Error(err)
	}
	l, err := locktest.TryInTime(t, c[1], "name")
	if err != nil {
		t.Fatal(err)
	}
	Unlock(t, l)
}
