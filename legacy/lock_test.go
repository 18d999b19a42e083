package legacy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/legacy"
)

// What is on the wire is what old lockers write and read.
func TestProtocol(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	mine, other := open(t, server.URL()), open(t, server.URL())
	before := time.Now().Unix()
	lock := try(t, mine, "foo")
	if at := expires(t, server, "lock.foo"); at < before+61 || at > time.Now().Unix()+61 {
		t.Errorf("it expires at %d, taken at %d", at, before)
	}
	if left := time.Until(lock.Until()); left > timeout || left < timeout-patience || lock.Name() != "foo" {
		t.Errorf("%q is held for %v", lock.Name(), left)
	}
	isHeld(t, other, "foo")
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := do(t, server, "EXISTS", "lock.foo"); n != int64(0) {
		t.Error("released and still there")
	}
	for _, err := range []error{lock.Unlock(t.Context()), lock.Extend(t.Context()), lock.Err(), context.Cause(lock.Context())} {
		if !errors.Is(err, redlatch.ErrReleased) {
			t.Errorf("released, it is %v", err)
		}
	}
	next := try(t, other, "foo")
	do(t, server, "SET", "lock.foo", "1") // which an extension would replace
	if err := lock.Extend(t.Context()); !errors.Is(err, redlatch.ErrReleased) || do(t, server, "GET", "lock.foo") != "1" {
		t.Errorf("the next holder's is extended: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := next.Unlock(ended); err != nil || do(t, server, "EXISTS", "lock.foo") != int64(0) {
		t.Errorf("ctx is done, and the lock is not released: %v", err)
	}
}

// Values of other lockers: what expired is taken over, whatever else is there is
// not.
func TestValuesOfOthers(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	locker := open(t, server.URL())
	now := time.Now().Unix()
	for value, free := range map[string]bool{
		fmt.Sprint(now - 2): true, fmt.Sprintf("%d.75", now-5): true, fmt.Sprintf(" %d\n", now-2): true, "0": true, "-1": true,
		fmt.Sprint(now + 600): false, fmt.Sprintf("%d.5", now+600): false,
		"": false, "a token": false, "NaN": false, "+Inf": false, "-Inf": false, "5b7f": false,
		"4711_2": false, "12e4": false, "0x1p4": false, "-": false, "1.2.3": false, strings.Repeat("9", 400): false,
	} {
		name := "v" + value
		do(t, server, "SET", "lock."+name, value)
		lock, err := locker.TryLock(t.Context(), name)
		if (lock != nil) != free || !free && !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("%q: taken over: %t, %v", value, lock != nil, err)
		}
		if got := do(t, server, "GET", "lock."+name); (got == value) == free {
			t.Errorf("%q is now %q", value, got)
		}
	}
}

// A lock that ran out is not released: by then it may be another's.
func TestReleaseOnlyWhileNotExpired(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	mine, other := openFor(t, server.URL(), time.Second), open(t, server.URL())
	var lock *legacy.Lock
	await(t, "taken", func() (ok bool) { // unless it has run out before the answer comes
		var err error
		lock, err = mine.TryLock(t.Context(), "foo")
		return err == nil
	})
	<-lock.Context().Done()
	if err := context.Cause(lock.Context()); !errors.Is(err, redlatch.ErrLost) || !errors.Is(lock.Err(), redlatch.ErrLost) {
		t.Errorf("it ran out: %v", err)
	}
	var next *legacy.Lock
	await(t, "taken over", func() (ok bool) {
		var err error
		next, err = other.TryLock(t.Context(), "foo")
		return err == nil
	})
	at := expires(t, server, "lock.foo")
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	if err := lock.Extend(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if got := expires(t, server, "lock.foo"); got != at || next.Err() != nil {
		t.Errorf("the next holder's value is %d, was %d", got, at)
	}
}

// A lock that is released while it is looked at is free, whether it had expired or not.
func TestReleasedAmidATry(t *testing.T) {
	t.Parallel()
	for command, value := range map[string]int64{"GET": time.Now().Unix() + 60, "GETSET": time.Now().Unix() - 60} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			proxy := redistest.NewProxy(t, server.Addr())
			locker := open(t, proxy.URL())
			var released atomic.Int32
			proxy.OnCommand(func(c redistest.Command) redistest.Action {
				if c.Name() == command {
					if _, err := server.Do("DEL", "lock.foo"); err != nil {
						t.Error(err)
					}
					released.Add(1)
				}
				return redistest.Pass
			})
			await(t, "it is taken", func() bool { // at once, unless the machine is busy
				do(t, server, "SET", "lock.foo", fmt.Sprint(value))
				_, err := locker.TryLock(t.Context(), "foo")
				if err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Fatal(err)
				}
				return err == nil
			})
			if released.Load() == 0 {
				t.Error("it was not released under way")
			}
		})
	}
}

// Losers of the race overwrite the value: the holder releases all the same.
func TestReleaseOfAnOverwrittenValue(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	lock := try(t, open(t, server.URL()), "foo")
	do(t, server, "GETSET", "lock.foo", fmt.Sprint(time.Now().Unix()+25))
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if n := do(t, server, "EXISTS", "lock.foo"); n != int64(0) {
		t.Error("it is still there")
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	locker := open(t, server.URL())
	lock := try(t, locker, "foo")
	first, at := lock.Until(), expires(t, server, "lock.foo")
	await(t, "others see it last longer", func() bool { // they see whole seconds
		if err := lock.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		return expires(t, server, "lock.foo") > at
	})
	if last := lock.Until(); !last.After(first) || last.Unix()+1 != expires(t, server, "lock.foo") {
		t.Errorf("it was held until %v, is held until %v, and others see %d", first, last, expires(t, server, "lock.foo"))
	}
	if lock.Err() != nil || lock.Context().Err() != nil {
		t.Errorf("extended, it is %v", lock.Err())
	}
	do(t, server, "DEL", "lock.foo") // by an old locker, whose it was not
	if err := lock.Extend(t.Context()); !errors.Is(err, redlatch.ErrLost) || !errors.Is(lock.Err(), redlatch.ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if n := do(t, server, "EXISTS", "lock.foo"); n != int64(0) {
		t.Error("it was made anew")
	}
	lock = try(t, locker, "foo")
	do(t, server, "DEL", "lock.foo")
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{TLS: true})
	locker, err := legacy.Open(legacy.Config{URL: server.URL(), Timeout: timeout, TLS: server.TLSConfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	if err := try(t, locker, "foo").Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLockWaits(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	locker := open(t, server.URL())
	lock := try(t, locker, "foo")
	err := givesUp(t, server, func(ctx context.Context) error { _, err := locker.Lock(ctx, "foo"); return err })
	if !errors.Is(err, errGaveUp) || !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("ctx ended: %v", err)
	}
	got := make(chan error)
	go func() {
		_, err := locker.Lock(t.Context(), "foo")
		got <- err
	}()
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for text, config := range map[string]legacy.Config{
		"Config.Timeout":            {URL: "redis://127.0.0.1:1", Timeout: 0},
		"whole seconds":             {URL: "redis://127.0.0.1:1", Timeout: 1500 * time.Millisecond},
		"at least 1s":               {URL: "redis://127.0.0.1:1", Timeout: -time.Second},
		"Config.KeyTemplate":        {URL: "redis://127.0.0.1:1", Timeout: time.Second, KeyTemplate: "lock"},
		"{name} once":               {URL: "redis://127.0.0.1:1", Timeout: time.Second, KeyTemplate: "lock.{name}.{name}"},
		"TLS is given":              {URL: "redis://127.0.0.1:1", Timeout: time.Second, TLS: new(tls.Config)},
		"Config.URL is empty: give": {Timeout: time.Second},
	} {
		if _, err := legacy.Open(config); !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", config, err)
		}
	}
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	locker := open(t, proxy.URL())
	if _, err := locker.TryLock(t.Context(), ""); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	do(t, server, "RPUSH", "lock.list", "x")
	if _, err := locker.Lock(t.Context(), "list"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a list: %v", err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	if _, err := locker.TryLock(t.Context(), "foo"); !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("out of memory: %v", err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	lock := try(t, locker, "foo")
	locker.NotPatient()
	proxy.BlackHole(redistest.Both, true)
	if _, err := locker.TryLock(t.Context(), "bar"); !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("no answer: %v", err)
	}
	if err := lock.Extend(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || lock.Err() != nil {
		t.Errorf("extend: %v; the lock is %v", err, lock.Err())
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || !errors.Is(lock.Err(), redlatch.ErrReleased) {
		t.Errorf("unlock: %v; the lock is %v", err, lock.Err())
	}
}

// A caller whose ctx ends while the server is asked learns what ended it, and no other that the server is slow.
func TestCauseOfTheEnd(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	locker := open(t, proxy.URL())
	held := try(t, locker, "held")
	calls := map[string]func(context.Context) error{
		"TryLock": func(ctx context.Context) error { _, err := locker.TryLock(ctx, "foo"); return err },
		"Lock":    func(ctx context.Context) error { _, err := locker.Lock(ctx, "foo"); return err },
		"Extend":  held.Extend,
	}
	for name, call := range calls {
		reason := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		proxy.OnCommand(func(redistest.Command) redistest.Action {
			cancel(reason)
			return redistest.DropReply
		})
		if err := call(ctx); !errors.Is(err, reason) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%s: %v", name, err)
		}
	}
	locker.NotPatient()
	proxy.OnCommand(func(redistest.Command) redistest.Action { return redistest.DropReply })
	for name, call := range calls {
		if err := call(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), "did not answer in time") {
			t.Errorf("%s, without an answer: %v", name, err)
		}
	}
}

// A caller whose ctx ends in a later try learns that as well, and what was in the way before.
func TestWhatWasInTheWay(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	try(t, open(t, server.URL()), "foo")
	reason := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	var tries atomic.Int32
	proxy.OnCommand(func(c redistest.Command) redistest.Action {
		if c.Name() == "SETNX" && tries.Add(1) == 2 {
			cancel(reason)
			return redistest.DropReply
		}
		return redistest.Pass
	})
	if _, err := open(t, proxy.URL()).Lock(ctx, "foo"); !errors.Is(err, reason) || !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("after %d tries: %v", tries.Load(), err)
	}
}
