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

// Two URLs that lead to one server would vote twice. It is found by its run_id,
// before anything is locked: when it can be reached at once, by Open, else by
// the first lock that reaches it.
func TestOneServerUnderTwoURLs(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		other := redistest.New(t, redistest.Options{Binary: binary})
		proxy := redistest.NewProxy(t, server.Addr())
		c := locktest.Config(server.URL(), other.URL(), proxy.URL())
		told := func(err error) {
			t.Helper()
			if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "n0") || !strings.Contains(err.Error(), "n2") ||
				!strings.Contains(err.Error(), "Nodes") || !strings.Contains(err.Error(), "once") {
				t.Errorf("%v", err)
			}
		}
		// Open waits for the slowest of three only a little longer than for the others.
		var err error
		locktest.Await(t, "Open finds it", func() bool {
			client, openErr := redlatch.Open(c)
			if client != nil {
				client.Close()
			}
			err = openErr
			return err != nil
		})
		told(err)

		if err := proxy.Refuse(true); err != nil {
			t.Fatal(err)
		}
		client := locktest.Open(t, c) // it cannot know
		locktest.Unlock(t, locktest.TryLock(t, client, "x"))
		if err := proxy.Refuse(false); err != nil {
			t.Fatal(err)
		}
		locktest.Await(t, "it is found when both are reached", func() bool {
			lock, err := client.TryLock(t.Context(), "x")
			if err != nil {
				told(err)
				return true
			}
			locktest.Unlock(t, lock)
			return false
		})
		_, err = client.Lock(locktest.Within(t, locktest.Patience), "x")
		told(err)
		if keys := locktest.LockKeys(t, server); len(keys) > 0 {
			locktest.Await(t, "nothing is locked", func() bool { return len(locktest.LockKeys(t, server)) == 0 })
		}
	})
}

// What a call asks for is checked before anything is sent.
func TestInvalidCalls(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	proxy := redistest.NewProxy(t, server.Addr())
	client := locktest.Open(t, locktest.Config(proxy.URL()))
	before := proxy.Commands()
	cases := []struct {
		name, lock string
		options    []redlatch.Option
		words      []string
	}{
		{"empty name", "", nil, []string{"name", "empty"}},
		{"long name", strings.Repeat("x", 513), nil, []string{"name", "513", "512"}},
		{"a key of the library's own", "redlatch:x", nil, []string{"redlatch:x", "another name"}},
		{"zero TTL", "x", []redlatch.Option{redlatch.WithTTL(0)}, []string{"WithTTL", "1ms"}},
		{"negative TTL", "x", []redlatch.Option{redlatch.WithTTL(-time.Second)}, []string{"WithTTL", "the drift of 2ms"}},
		{"TTL below the grain", "x", []redlatch.Option{redlatch.WithTTL(999 * time.Microsecond)}, []string{"WithTTL", "1ms"}},
		{"TTL below its drift", "x", []redlatch.Option{redlatch.WithTTL(2 * time.Millisecond)}, []string{"WithTTL", "drift"}},
		{"TTL that is cut below its drift", "x", []redlatch.Option{redlatch.WithTTL(2900 * time.Microsecond)}, []string{"WithTTL"}},
		{"TTL beyond MaxTTL", "x", []redlatch.Option{redlatch.WithTTL(2 * locktest.TTL)}, []string{"WithTTL", "MaxTTL", "1m0s"}},
		{"guard as long as the TTL", "x", []redlatch.Option{redlatch.WithTTL(time.Second), redlatch.WithGuard(time.Second)}, []string{"WithGuard"}},
		{"negative guard", "x", []redlatch.Option{redlatch.WithGuard(-1)}, []string{"WithGuard"}},
		{"no hold", "x", []redlatch.Option{redlatch.WithMaxHold(0)}, []string{"WithMaxHold"}},
		{"label", "x", []redlatch.Option{redlatch.WithLabel("a\tb")}, []string{"WithLabel", "printable"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, tried := client.TryLock(t.Context(), c.lock, c.options...)
			_, waited := client.Lock(locktest.Within(t, locktest.Patience/4), c.lock, c.options...)
			done := client.Do(locktest.Within(t, locktest.Patience/4), c.lock, func(context.Context) error { t.Error("done"); return nil }, c.options...)
			for what, err := range map[string]error{"TryLock": tried, "Lock": waited, "Do": done} {
				if !errors.Is(err, redlatch.ErrInvalid) {
					t.Errorf("%s: %v", what, err)
				}
				for _, w := range c.words {
					if !strings.Contains(fmt.Sprint(err), w) {
						t.Errorf("%s: no word of %q: %v", what, w, err)
					}
				}
			}
		})
	}
	for name, n := range proxy.Commands() {
		if n != before[name] && name != "PING" {
			t.Errorf("%d commands %s were sent", n-before[name], name)
		}
	}
}

// What the defaults are, as far as they show.
func TestDefaults(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	base := locktest.Config(server.URL())
	cases := []struct {
		name        string
		ttl, maxTTL time.Duration
		want        time.Duration // of a lock
		most        time.Duration // that can be asked for
	}{
		{"all", 0, 0, 10 * time.Second, 30 * time.Second},
		{"TTL only", 40 * time.Second, 0, 40 * time.Second, 40 * time.Second},
		{"short TTL only", time.Second, 0, time.Second, 30 * time.Second},
		{"MaxTTL only", 0, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		{"long MaxTTL only", 0, time.Minute, 10 * time.Second, time.Minute},
		{"cut to the grain", 1500*time.Millisecond + 999*time.Microsecond, 0, 1500 * time.Millisecond, 30 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := locktest.Config(server.URL())
			cfg.TTL, cfg.MaxTTL, cfg.NodeTimeout = c.ttl, c.maxTTL, base.NodeTimeout
			client := locktest.Open(t, cfg)
			start := time.Now()
			lock := locktest.TryLock(t, client, t.Name())
			if valid, want := lock.Until().Sub(start), c.want-c.want/100-2*time.Millisecond; valid < want || valid > want+time.Since(start) {
				t.Errorf("valid for %v, want %v", valid, want)
			}
			if left := locktest.Remaining(t, server, t.Name()); left > c.want || left < c.want-time.Since(start)-time.Millisecond {
				t.Errorf("the server keeps it for %v, want %v", left, c.want)
			}
			locktest.Unlock(t, lock)
			locktest.Unlock(t, locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(c.most)))
			if _, err := client.TryLock(t.Context(), t.Name(), redlatch.WithTTL(c.most+time.Millisecond)); !errors.Is(err, redlatch.ErrInvalid) {
				t.Errorf("a TTL beyond the longest: %v", err)
			}
		})
	}
}

// A caller may use its slices for something else as soon as it has passed them.
func TestSlicesOfTheCaller(t *testing.T) {
	t.Parallel()
	config := locktest.Config(locktest.Shared(t, 1)[0].URL())
	client := locktest.Open(t, config)
	config.Nodes[0] = "redis://127.0.0.1:1"
	names := []string{t.Name() + "/a"}
	also := redlatch.WithAlso(names...)
	names[0] = t.Name() + "/b"
	lock := locktest.TryLock(t, client, t.Name(), also)
	if got := lock.Names(); len(got) != 2 || got[1] != t.Name()+"/a" {
		t.Errorf("locked %q", got)
	}
	if listed, _, err := client.List(t.Context(), t.Name()+"*"); len(listed) != 2 || err != nil {
		t.Errorf("listed %v, %v", listed, err)
	}
	locktest.Unlock(t, lock)
}

// A Unix socket, a database and a user's name reach the server.
func TestSocketsAndDatabases(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Unix: true, Users: []string{"alice on >secret ~* +@all"}})
		client := locktest.Open(t, locktest.Config("unix://alice:secret@"+server.Socket()+"?db=3"))
		lock := locktest.TryLock(t, client, "x")
		other := locktest.Open(t, locktest.Config(server.URLAs("alice", "secret")+"/3"))
		if _, err := locktest.TryInTime(t, other, "x"); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("the same database by another way: %v", err)
		}
		locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, locktest.Config(server.URL())), "x")) // database 0
		locktest.Unlock(t, lock)
		locktest.Unlock(t, locktest.TryLock(t, other, "x"))
	})
}

// Names with any bytes are keys as they are; only the template changes them.
func TestNamesAndTemplates(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		names := []string{"a", "{", "}", "{}", "}{", "{a}b", "a{b}c}", "{{a}}", "{name}", "a b", "a\r\nb", "a\x00b", "ünïcødé", "%s%d", "\xff\xfe", strings.Repeat("n", 450)}
		for _, template := range []string{"", "redlock:{name}", "{{name}}:lock", "x{name}}y"} {
			c := locktest.Config(redistest.URLs(nodes)...)
			c.KeyTemplate = template
			client, other := locktest.Open(t, c), locktest.Open(t, c)
			for _, name := range names {
				name += "/" + t.Name()
				key := name
				if template != "" {
					key = strings.Replace(template, "{name}", name, 1)
				}
				lock := locktest.TryLock(t, client, name)
				if lock.Name() != name {
					t.Errorf("%q is called %q", name, lock.Name())
				}
				for _, s := range nodes {
					locktest.Await(t, fmt.Sprintf("%q is the key of %q", key, name), func() bool { return locktest.Value(t, s, key) != "" })
				}
				if _, err := locktest.TryInTime(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("%q: %v", name, err)
				}
				locktest.Extend(t, lock, locktest.TTL)
				locktest.Unlock(t, lock)
				for _, s := range nodes {
					locktest.AwaitValue(t, s, key, "")
				}
			}
		}
	})
}

// Node names go into texts that servers read; none may break them.
func TestOddNodeNames(t *testing.T) {
	t.Parallel()
	server := redistest.New(t) // its own: one of them would have it flushed
	for _, name := range []string{"it's", `a"b`, `back\slash`, "a b", "a]]b", "日本", "%s", "a'..redis.call('FLUSHALL')..'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := locktest.Config(server.URL())
			c.Nodes = []string{server.URL() + "#" + strings.ReplaceAll(name, "%", "%25")}
			client, err := redlatch.Open(c)
			if err != nil {
				if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Nodes[0]") {
					t.Errorf("%v", err)
				}
				return
			}
			defer client.Close()
			locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
		})
	}
}
