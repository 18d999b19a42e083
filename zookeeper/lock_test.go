package zookeeper_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/zookeeper"
)

func TestOneHolder(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 2)
	held := lock(t, c[0], "name with / and ü")
	if _, err := c[1].TryLock(t.Context(), "name with / and ü"); !errors.Is(err, redlatch.ErrHeld) {
		t.Fatalf("another: %v, want ErrHeld", err)
	} else if failure, ok := errors.AsType[*redlatch.QuorumError](err); ok {
		if holder, left, ok := failure.Holder(); !ok || holder.Label == "" || left <= 0 || left > ttl {
			t.Errorf("the error says %v, %v left, %v", holder, left, ok)
		}
	}
	if other, err := c[1].TryLock(t.Context(), "other"); err != nil {
		t.Error(err)
	} else {
		unlock(t, other)
	}
	if err := held.Extend(t.Context(), ttl); err != nil {
		t.Error(err)
	}
	unlock(t, held)
	if err := held.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("unlocked again: %v", err)
	}
	again, err := c[1].TryLock(t.Context(), "name with / and ü")
	if err != nil {
		t.Fatal("after the release: ", err)
	}
	unlock(t, again)
}

// Many callers of several clients count without losing a count, under growing tokens.
func TestExclusion(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 3)
	var callers sync.WaitGroup
	ctx := within(t, 2*patience)
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
				if err := held.Unlock(ctx); err != nil {
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
	if now := uint64(time.Now().UnixMicro()); last < now || last >= 1<<53 {
		t.Errorf("the token %d is not above those of Redis, which are %d", last, now)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	const n = 5
	c := clients(t, common(t), n+1)
	held := lock(t, c[n], "name")
	waiting := make([]<-chan outcome, n)
	for i := range waiting {
		waiting[i] = lockIn(t, c[i], "name")
	}
	unlock(t, held)
	for i, out := range waiting {
		got := <-out
		if got.err != nil {
			t.Fatal(got.err)
		}
		for j := i + 1; j < n; j++ {
			select {
			case other := <-waiting[j]:
				t.Fatalf("%d has it while %d does, %v", j, i, other.err)
			default:
			}
		}
		unlock(t, got.lock)
	}
}

// A waiter is woken up: it does not wait for a poll, nor for the TTL.
func TestWakeUp(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 2)
	fastest := time.Hour
	for range 5 {
		held := lock(t, c[0], "name")
		out := lockIn(t, c[1], "name")
		start := time.Now()
		unlock(t, held)
		got := <-out
		if got.err != nil {
			t.Fatal(got.err)
		}
		fastest = min(fastest, got.at.Sub(start))
		unlock(t, got.lock)
	}
	if fastest > time.Second { // polls are 1.5 s apart and more
		t.Errorf("the fastest of 5 took %v", fastest)
	}
}

func TestExtendNeverShortens(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 2)
	held := lock(t, c[0], "name", redlatch.WithoutRenewal())
	until := held.Until()
	if err := held.Extend(t.Context(), 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if held.Until().Before(until) {
		t.Error("it is shorter for the holder")
	}
	got := <-lockIn(t, c[1], "name")
	if got.err != nil {
		t.Fatal(got.err)
	}
	if early := until.Sub(got.at); early > 0 {
		t.Errorf("another has it %v before the end", early)
	}
	unlock(t, got.lock)
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 2)
	held := lock(t, c[0], "name")
	out := lockIn(t, c[1], "name")
	select {
	case got := <-out:
		t.Fatalf("another has a lock that is renewed: %v", got.err)
	case <-time.After(2 * ttl):
	}
	if err := held.Err(); err != nil {
		t.Fatal(err)
	}
	unlock(t, held)
	if got := <-out; got.err != nil {
		t.Error(got.err)
	} else {
		unlock(t, got.lock)
	}
}

// A holder that does not renew is followed by a waiter that has watched the lease for a TTL.
func TestTakeover(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 2)
	held := lock(t, c[0], "name", redlatch.WithoutRenewal())
	out := lockIn(t, c[1], "name")
	<-held.Context().Done()
	lost := time.Now()
	got := <-out
	if got.err != nil {
		t.Fatal(got.err)
	}
	if !errors.Is(held.Err(), redlatch.ErrLost) || got.at.Before(lost) || got.lock.Token() <= held.Token() {
		t.Errorf("the first says %v, %v after the second has it; tokens %d and %d", held.Err(), lost.Sub(got.at), held.Token(), got.lock.Token())
	}
	unlock(t, got.lock)
}

// plant has a lock held by somebody who neither extends nor releases it, and whose session lives on.
func plant(t *testing.T, conn *zk.Conn, root, name string) (lease string) {
	t.Helper()
	place := root + "/lock:" + name
	lease = place + "/lease:planted"
	for path, data := range map[string]string{place + "/held": "", lease: strconv.FormatInt(ttl.Milliseconds(), 10)} {
		if _, err := conn.Create(path, []byte(data), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	return lease
}

// A lease that nobody extends is taken over, whatever its session does, and not before it has been
// seen at one version for its TTL.
func TestTakeoverByVersion(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.addrs(), Root: rootOf(t)}
	wire := new(wire)
	ensemble.Dial = wire.dial
	client := open(t, config, ensemble)
	unlock(t, lock(t, client, "name"))
	conn := connect(t, e)
	lease := plant(t, conn, ensemble.Root, "name")
	extended := make(chan time.Time, 1)
	extend := func() { // once, when the client is about to take over
		wire.holdMulti.Store(nil)
		if _, err := conn.Set(lease, []byte(strconv.FormatInt(ttl.Milliseconds(), 10)), -1); err != nil {
			t.Error(err)
		}
		extended <- time.Now()
	}
	wire.holdMulti.Store(&extend)
	got := <-lockIn(t, client, "name")
	if got.err != nil {
		t.Fatal(got.err)
	}
	if after := got.at.Sub(<-extended); after < ttl*9/10 {
		t.Errorf("it was taken over %v after an extension", after)
	}
	if _, err := conn.Sync(lease); err != nil { // its server may lag behind
		t.Error(err)
	}
	if found, _, err := conn.Exists(lease); found || err != nil {
		t.Errorf("the lease is there: %v, %v", found, err)
	}
	unlock(t, got.lock)
}

// Whoever stops waiting leaves nothing behind, and those behind it go on.
func TestCancel(t *testing.T) {
	t.Parallel()
	e := common(t)
	c := clients(t, e, 3)
	held := lock(t, c[0], "name")
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, 1)
	go func() {
		_, err := c[1].Lock(ctx, "name")
		out <- err
	}()
	time.Sleep(100 * time.Millisecond)
	behind := lockIn(t, c[2], "name")
	cancel()
	if err := <-out; !errors.Is(err, context.Canceled) || !errors.Is(err, redlatch.ErrHeld) {
		t.Fatal(err)
	}
	unlock(t, held)
	got := <-behind
	if got.err != nil {
		t.Fatal(got.err)
	}
	unlock(t, got.lock)
	for i := range 30 { // tries that are cancelled at any moment
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		if l, err := c[i%3].Lock(ctx, "name"); err == nil {
			unlock(t, l)
		}
		cancel()
	}
	await(t, "nothing is left", func() bool {
		l, err := c[0].TryLock(t.Context(), "name")
		if err == nil {
			unlock(t, l)
		}
		return err == nil
	})
}

func TestMinHoldOutlastsClose(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 2)
	start := time.Now()
	if err := c[0].TryDo(t.Context(), "job", func(context.Context) error { return nil }, redlatch.WithMinHold(ttl*9/10)); err != nil {
		t.Fatal(err)
	}
	if err := c[0].Close(); err != nil {
		t.Error(err)
	}
	for time.Since(start) < ttl*8/10 {
		if _, err := c[1].TryLock(t.Context(), "job"); !errors.Is(err, redlatch.ErrHeld) {
			t.Fatalf("%v after the start: %v", time.Since(start), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	unlock(t, lock(t, c[1], "job"))
}

func TestCloseReleases(t *testing.T) {
	t.Parallel()
	c := clients(t, common(t), 2)
	lock(t, c[0], "name")
	if err := c[0].Close(); err != nil {
		t.Error(err)
	}
	l, err := c[1].TryLock(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, l)
}
