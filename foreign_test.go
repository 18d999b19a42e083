package redlatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// compareAndDelete is how other libraries release.
const compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// A lock made with SET NX PX, as a dozen other libraries do, excludes ours, and
// ours excludes it.
func TestForeignHolders(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := sharedOf(t, binary, 3)
		client := open(t, config(redistest.URLs(nodes)...))
		name := t.Name()
		for _, s := range nodes {
			if do(t, s, "SET", name, "3f2504e0-4f89", "NX", "PX", "60000") != "OK" {
				t.Fatal("not free")
			}
		}
		_, err := client.TryLock(t.Context(), name)
		if !errors.Is(err, redlatch.ErrHeld) {
			t.Fatal(err)
		}
		holder, left, ok := failureOf(t, err).Holder()
		if !ok || holder.ID != "3f2504e0-4f89" || holder.Label != "" || !holder.Since.IsZero() || left <= 0 || left > time.Minute {
			t.Errorf("holder %+v, %v left", holder, left)
		}
		if !strings.Contains(err.Error(), "3f2504e0-4f89") {
			t.Errorf("%v", err)
		}
		report, waits := waiting(nil)
		out := lockIn(within(t, patience), client, name, report)
		<-waits
		for _, s := range nodes {
			if do(t, s, "EVAL", compareAndDelete, "1", name, "3f2504e0-4f89") != int64(1) {
				t.Error("theirs was touched")
			}
		}
		o := <-out
		if o.err != nil {
			t.Fatal(o.err)
		}
		for _, s := range nodes {
			await(t, "all nodes have it", func() bool { return value(t, s, name) != "" })
			if do(t, s, "SET", name, "3f2504e0-4f89", "NX", "PX", "60000") != nil {
				t.Error("they took ours")
			}
			if do(t, s, "EVAL", compareAndDelete, "1", name, "3f2504e0-4f89") != int64(0) {
				t.Error("they deleted ours")
			}
		}
		unlock(t, o.lock)
		for _, s := range nodes {
			awaitValue(t, s, name, "")
		}
	})
}

// A foreign lock without an expiry is for ever, and says so.
func TestForeignHolderWithoutExpiry(t *testing.T) {
	t.Parallel()
	nodes := shared(t, 1)
	client := open(t, config(redistest.URLs(nodes)...))
	do(t, nodes[0], "SET", t.Name(), "theirs")
	_, err := client.TryLock(t.Context(), t.Name())
	if !errors.Is(err, redlatch.ErrHeld) {
		t.Fatal(err)
	}
	if _, left, ok := failureOf(t, err).Holder(); !ok || left >= 0 {
		t.Errorf("%v left", left)
	}
	do(t, nodes[0], "DEL", t.Name())
	unlock(t, tryLock(t, client, t.Name()))
}

// A foreign lock on a minority is no obstacle, and stays.
func TestForeignHolderOfAMinority(t *testing.T) {
	t.Parallel()
	nodes := shared(t, 5)
	client := open(t, config(redistest.URLs(nodes)...))
	for _, s := range nodes[:2] {
		do(t, s, "SET", t.Name(), "theirs", "PX", "60000")
	}
	lock := tryLock(t, client, t.Name())
	if err := lock.Extend(t.Context(), 20*time.Second); err != nil {
		t.Error(err)
	}
	unlock(t, lock)
	for i, s := range nodes {
		want := ""
		if i < 2 {
			want = "theirs"
		}
		awaitValue(t, s, t.Name(), want)
		do(t, s, "DEL", t.Name())
	}
}

// Ids are compared whole: one that begins or ends like ours is another's.
func TestHolderIDsAreComparedWhole(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		node := sharedOf(t, binary, 1)[0]
		client := open(t, config(node.URL()))
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
			lock := tryLock(t, client, name, redlatch.WithLabel("job-1"), redlatch.WithoutRenewal())
			theirs := change(value(t, node, name))
			do(t, node, "SET", name, theirs, "PX", "60000")
			// Not both: who has learnt of the loss sends no release.
			if extend {
				if err := lock.Extend(t.Context(), 20*time.Second); !errors.Is(err, redlatch.ErrLost) {
					t.Errorf("%s: extend: %v", what, err)
				}
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("%s: unlock: %v", what, err)
			}
			if reply := do(t, node, "GET", name); reply != theirs {
				t.Errorf("%s: their record is now %v", what, reply)
			}
			if _, err := tryInTime(t, client, name); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("%s: %v", what, err)
			}
			do(t, node, "DEL", name)
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
	server := shared(t, 1)[0]
	proxy := redistest.NewProxy(t, server.Addr())
	w := tap(proxy)
	client := open(t, config(proxy.URL()))
	do(t, server, "SET", t.Name(), "theirs", "PX", "60000")
	ctx, cancel := context.WithCancel(t.Context())
	out := lockIn(ctx, client, t.Name(), redlatch.WithoutQueue())
	await(t, "it has tried several times", func() bool { return w.count("acquire") > 3 })
	cancel()
	if o := <-out; !errors.Is(o.err, redlatch.ErrHeld) {
		t.Fatal(o.err)
	}
	for range 20 {
		client.TryLock(t.Context(), t.Name())
	}
	do(t, server, "DEL", t.Name())
	w.checkOnce(t, "acquire")
	w.mu.Lock()
	defer w.mu.Unlock()
	heads := make(map[string]bool)
	for what := range w.sent {
		if _, id, ok := strings.Cut(what, "acquire "); ok {
			heads[id[:26]] = true
		}
	}
	if len(heads) < 22 {
		t.Errorf("%d ids of more than 21 tries", len(heads))
	}
}
