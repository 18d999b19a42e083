package locking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A lock made with SET NX PX, as a dozen other libraries do, excludes ours, and
// ours excludes it.
func TestForeignHolders(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		name := t.Name()
		for _, s := range nodes {
			if locktest.Do(t, s, "SET", name, "3f2504e0-4f89", "NX", "PX", "60000") != "OK" {
				t.Fatal("not free")
			}
		}
		_, err := client.TryLock(t.Context(), name)
		if !errors.Is(err, redlatch.ErrHeld) {
			t.Fatal(err)
		}
		holder, left, ok := locktest.FailureOf(t, err).Holder()
		if !ok || holder.ID != "3f2504e0-4f89" || holder.Label != "" || !holder.Since.IsZero() || left <= 0 || left > time.Minute {
			t.Errorf("holder %+v, %v left", holder, left)
		}
		if !strings.Contains(err.Error(), "3f2504e0-4f89") {
			t.Errorf("%v", err)
		}
		report, waits := locktest.WhenWaiting(nil)
		out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, name, report)
		<-waits
		for _, s := range nodes {
			if locktest.Do(t, s, "EVAL", locktest.CompareAndDelete, "1", name, "3f2504e0-4f89") != int64(1) {
				t.Error("theirs was touched")
			}
		}
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		locktest.AwaitOn(t, o.Lock, nodes...)
		for _, s := range nodes {
			if locktest.Do(t, s, "SET", name, "3f2504e0-4f89", "NX", "PX", "60000") != nil {
				t.Error("they took ours")
			}
			if locktest.Do(t, s, "EVAL", locktest.CompareAndDelete, "1", name, "3f2504e0-4f89") != int64(0) {
				t.Error("they deleted ours")
			}
		}
		locktest.Unlock(t, o.Lock)
		for _, s := range nodes {
			locktest.AwaitValue(t, s, name, "")
		}
	})
}

// A foreign lock without an expiry is for ever, and says so.
func TestForeignHolderWithoutExpiry(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 1)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	locktest.Do(t, nodes[0], "SET", t.Name(), "theirs")
	_, err := client.TryLock(t.Context(), t.Name())
	if !errors.Is(err, redlatch.ErrHeld) {
		t.Fatal(err)
	}
	if _, left, ok := locktest.FailureOf(t, err).Holder(); !ok || left >= 0 {
		t.Errorf("%v left", left)
	}
	locktest.Do(t, nodes[0], "DEL", t.Name())
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
}

// Of permits the one is told of that may be free first: that is none without an expiry.
func TestForeignPermitWithoutExpiry(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	client := locktest.Open(t, locktest.Config(server.URL()))
	for endless := range 3 {
		name := fmt.Sprint(t.Name(), endless)
		for slot := range 3 {
			key := locktest.SlotKey(name, slot)
			locktest.Do(t, server, "SET", key, "theirs", "PX", fmt.Sprint(60000*(slot+1)))
			if slot == endless {
				locktest.Do(t, server, "PERSIST", key)
			}
		}
		_, err := locktest.TryInTime(t, client, name, redlatch.WithPermits(3))
		if !errors.Is(err, redlatch.ErrHeld) {
			t.Fatal(err)
		}
		least := time.Minute
		if endless == 0 {
			least = 2 * time.Minute
		}
		if _, left, ok := locktest.FailureOf(t, err).Holder(); !ok || left <= 0 || left > least {
			t.Errorf("slot %d has no expiry: %v left, not %v", endless, left, least)
		}
	}
}

// A foreign lock on a minority is no obstacle, and stays.
func TestForeignHolderOfAMinority(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 5)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	for _, s := range nodes[:2] {
		locktest.Do(t, s, "SET", t.Name(), "theirs", "PX", "60000")
	}
	lock := locktest.TryLock(t, client, t.Name())
	locktest.Extend(t, lock, locktest.TTL)
	locktest.Unlock(t, lock)
	for i, s := range nodes {
		want := ""
		if i < 2 {
			want = "theirs"
		}
		locktest.AwaitValue(t, s, t.Name(), want)
		locktest.Do(t, s, "DEL", t.Name())
	}
}

// Ids are compared whole: one that begins or ends like ours is another's.
func TestHolderIDsAreComparedWhole(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		node := locktest.SharedOf(t, binary, 1)[0]
		client := locktest.Open(t, locktest.Config(node.URL()))
		changes := map[string]func(id string) string{
			"longer":       func(id string) string { return id + "0" },
			"shorter":      func(id string) string { return id[:len(id)-1] },
			"with a space": func(id string) string { return " " + id },
			"lower case":   strings.ToLower,
			"empty":        func(string) string { return "" },
			"a pattern":    func(string) string { return "*" },
			"without end":  func(id string) string { return id[:26] },
		}
		check := func(what string, change func(string) string, extend bool) {
			name := t.Name() + what
			lock := locktest.TryLock(t, client, name, redlatch.WithLabel("job-1"), redlatch.WithoutRenewal())
			theirs := change(locktest.Value(t, node, name))
			locktest.Do(t, node, "SET", name, theirs, "PX", "60000")
			// Not both: who has learnt of the loss sends no release.
			if extend {
				err := lock.Extend(t.Context(), locktest.TTL)
				for locktest.Late(err) {
					err = lock.Extend(t.Context(), locktest.TTL)
				}
				if !errors.Is(err, redlatch.ErrLost) {
					t.Errorf("%s: extend: %v", what, err)
				}
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("%s: unlock: %v", what, err)
			}
			if reply := locktest.Do(t, node, "GET", name); reply != theirs {
				t.Errorf("%s: their key is now %v", what, reply)
			}
			if _, err := locktest.TryInTime(t, client, name); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("%s: %v", what, err)
			}
			locktest.Do(t, node, "DEL", name)
		}
		for what, change := range changes {
			check(what, change, false)
			check(what, change, true)
		}
	})
}

// Every attempt has an id of its own, also the tries of one waiting call, and
// none says where the next begins.
func TestEveryAttemptHasItsOwnID(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	proxy := redistest.NewProxy(t, server.Addr())
	w := locktest.Tap(proxy)
	client := locktest.Open(t, locktest.Config(proxy.URL()))
	locktest.Do(t, server, "SET", t.Name(), "theirs", "PX", "60000")
	ctx, cancel := context.WithCancel(t.Context())
	out := locktest.LockIn(ctx, client, t.Name(), redlatch.WithoutQueue())
	locktest.Await(t, "it has tried several times", func() bool { return w.Count("acquire") > 3 })
	cancel()
	if o := <-out; !errors.Is(o.Err, redlatch.ErrHeld) {
		t.Fatal(o.Err)
	}
	for range 20 {
		client.TryLock(t.Context(), t.Name())
	}
	locktest.Do(t, server, "DEL", t.Name())
	w.CheckOnce(t, "acquire")
	w.Mu.Lock()
	defer w.Mu.Unlock()
	heads := make(map[string]bool)
	for what := range w.Sent {
		if _, id, ok := strings.Cut(what, "acquire "); ok {
			heads[id[:26]] = true
		}
	}
	if len(heads) < 22 {
		t.Errorf("%d ids of more than 21 tries", len(heads))
	}
}

// A key with a lock's name has another program's value, which may be larger than a connection takes
// for a reply. No step answers more than the beginning of it.
func TestForeignValueIsToldInPart(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := locktest.Open(t, locktest.Config(server.URL()))
	const size = 1 << 20
	for what, options := range map[string][]redlatch.Option{
		"alone": nil, "shared": {redlatch.WithShared()}, "several": {redlatch.WithAlso("beside")}, "permit": {redlatch.WithPermits(1)},
	} {
		key := what
		if what == "permit" {
			key = locktest.SlotKey(what, 0)
		}
		held := func(err error) {
			t.Helper()
			failure, ok := errors.AsType[*redlatch.QuorumError](err)
			if !ok || failure.Nodes[0].Verdict != redlatch.VoteHeld || failure.Nodes[0].Holder.ID != strings.Repeat("x", 1024) {
				t.Errorf("%s: %.200v", what, err)
			}
		}
		before := locktest.Output(t, server)
		lock := locktest.TryLock(t, client, what, append(options, redlatch.WithoutRenewal())...)
		locktest.Do(t, server, "SET", key, strings.Repeat("x", size))
		if err := locktest.InTime(func() error { return lock.Extend(t.Context(), locktest.TTL) }); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("%s: extended: %v", what, err)
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("%s: released: %v", what, err)
		}
		held(locktest.ErrorOf(locktest.TryInTime(t, client, what, options...)))
		held(locktest.InTime(func() error {
			ctx, cancel := context.WithCancel(locktest.Within(t, locktest.Patience))
			report, waits := locktest.WhenWaiting(nil)
			out := locktest.LockIn(ctx, client, what, append(options, report)...)
			<-waits
			cancel()
			return (<-out).Err
		}))
		if n := locktest.Output(t, server) - before; n >= size {
			t.Errorf("%s: the server has sent %d bytes", what, n)
		}
	}
}

// Somebody makes the key of a lock persistent, and its holder extends it by less than it has left. The key expires again,
// but not before the holder's time is over.
func TestPersistentKeyOutlastsItsHolder(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	client := locktest.Open(t, locktest.Config(server.URL()))
	for what, options := range map[string][]redlatch.Option{
		"writer": nil, "reader": {redlatch.WithShared()}, "permit": {redlatch.WithPermits(1)}, "several": {redlatch.WithAlso("{" + t.Name() + "/several}2")},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			lock := locktest.TryLock(t, client, t.Name(), append(options, redlatch.WithoutRenewal())...)
			keys := lock.Names()
			if what == "permit" {
				keys = []string{locktest.SlotKey(t.Name(), 0)}
			}
			for _, key := range keys {
				locktest.Do(t, server, "PERSIST", key)
			}
			locktest.Extend(t, lock, time.Second)
			for _, key := range keys {
				left := locktest.Remaining(t, server, key)
				if until := time.Until(lock.Until()); left < until {
					t.Errorf("the key %q expires in %v, and its holder has another %v", key, left, until)
				}
			}
		})
	}
}
