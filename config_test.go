package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What cannot work is refused before anything is sent, with an error that names
// the setting and what to do about it.
func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	server := shared(t, 1)[0]
	proxy := redistest.NewProxy(t, server.Addr())
	second := redistest.NewProxy(t, server.Addr())
	url := proxy.URL()
	host, port, _ := strings.Cut(proxy.Addr(), ":")
	cases := []struct {
		name   string
		config redlatch.Config
		words  []string // the setting, and the remedy
	}{
		{"no nodes", redlatch.Config{}, []string{"Nodes", "at least one", "redis://"}},
		{"no scheme", redlatch.Config{Nodes: []string{"127.0.0.1:6379"}}, []string{"Nodes[0]", "redis://HOST:PORT"}},
		{"empty URL", redlatch.Config{Nodes: []string{url, ""}}, []string{"Nodes[1]", "redis://HOST:PORT"}},
		{"bad port", redlatch.Config{Nodes: []string{"redis://127.0.0.1:x"}}, []string{"Nodes[0]"}},
		{"unknown parameter", redlatch.Config{Nodes: []string{url + "?timeout=1s"}}, []string{"Nodes[0]", "parameter", "db"}},
		{"node twice", redlatch.Config{Nodes: []string{url, url}}, []string{"Nodes[0]", "Nodes[1]", "vote twice", "once"}},
		{"node twice, one more between", redlatch.Config{Nodes: []string{url, second.URL(), url + "/"}}, []string{"Nodes[0]", "Nodes[2]", "vote twice"}},
		{"node twice by name", redlatch.Config{Nodes: []string{url + "#a", second.URL() + "#a"}}, []string{"Nodes[0]", "Nodes[1]", "vote twice"}},
		{"node twice with other credentials", redlatch.Config{Nodes: []string{url, "redis://alice:hunter2@" + host + ":" + port}}, []string{"Nodes[0]", "Nodes[1]"}},
		{"two databases of one node", redlatch.Config{Nodes: []string{url + "/0", url + "/1"}}, []string{"Nodes[0]", "Nodes[1]", "vote twice"}},
		{"negative TTL", redlatch.Config{Nodes: []string{url}, TTL: -time.Second}, []string{"Config.TTL", "-1s", "at least 1ms"}},
		{"TTL below the grain", redlatch.Config{Nodes: []string{url}, TTL: 999 * time.Microsecond}, []string{"Config.TTL", "999µs", "at least 1ms"}},
		{"TTL below its drift", redlatch.Config{Nodes: []string{url}, TTL: 2 * time.Millisecond}, []string{"Config.TTL", "2ms", "drift"}},
		{"TTL beyond MaxTTL", redlatch.Config{Nodes: []string{url}, TTL: time.Minute, MaxTTL: 30 * time.Second}, []string{"Config.TTL", "1m0s", "MaxTTL", "30s", "raise"}},
		{"negative MaxTTL", redlatch.Config{Nodes: []string{url}, MaxTTL: -1}, []string{"Config.MaxTTL"}},
		{"negative MaxHold", redlatch.Config{Nodes: []string{url}, MaxHold: -time.Hour}, []string{"Config.MaxHold"}},
		{"NodeTimeout below the grain", redlatch.Config{Nodes: []string{url}, NodeTimeout: time.Microsecond}, []string{"Config.NodeTimeout"}},
		{"NodeTimeout too long", redlatch.Config{Nodes: []string{url}, NodeTimeout: time.Minute}, []string{"Config.NodeTimeout", "1m0s", "at most"}},
		{"negative Replicas", redlatch.Config{Nodes: []string{url}, Replicas: redlatch.Replicas{Count: -1}}, []string{"Config.Replicas.Count", "-1"}},
		{"Replicas.Timeout too long", redlatch.Config{Nodes: []string{url}, Replicas: redlatch.Replicas{Count: 1, Timeout: time.Second}}, []string{"Config.Replicas.Timeout", "1s", "NodeTimeout", "50ms"}},
		{"template without name", redlatch.Config{Nodes: []string{url}, KeyTemplate: "lock:"}, []string{"Config.KeyTemplate", "{name}"}},
		{"template with the name twice", redlatch.Config{Nodes: []string{url}, KeyTemplate: "{name}{name}"}, []string{"Config.KeyTemplate", "once"}},
		{"long label", redlatch.Config{Nodes: []string{url}, Label: strings.Repeat("x", 65)}, []string{"Config.Label", "64"}},
		{"label that is no UTF-8", redlatch.Config{Nodes: []string{url}, Label: "a\xff"}, []string{"Config.Label", "printable"}},
		{"label with a line break", redlatch.Config{Nodes: []string{url}, Label: "a\nb"}, []string{"Config.Label", "printable"}},
		{"deployment", redlatch.Config{Nodes: []string{url}, Deployment: "a b"}, []string{"Config.Deployment", "letters"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			client, err := redlatch.Open(c.config)
			if client != nil {
				client.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, redlatch.ErrInvalid) {
				t.Errorf("not ErrInvalid: %v", err)
			}
			for _, w := range c.words {
				if !strings.Contains(fmt.Sprint(err), w) {
					t.Errorf("no word of %q: %v", w, err)
				}
			}
			if strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("the password is told: %v", err)
			}
		})
	}
	if s := proxy.Stats(); s.Accepted > 0 {
		t.Errorf("%d connections were made for configurations that cannot work", s.Accepted)
	}
}

// Several mistakes are told at once.
func TestInvalidConfigTellsAll(t *testing.T) {
	t.Parallel()
	_, err := redlatch.Open(redlatch.Config{TTL: time.Hour, MaxTTL: time.Minute, Label: "\x00", Deployment: "/"})
	for _, w := range []string{"Nodes", "TTL", "Label", "Deployment"} {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("no word of %s: %v", w, err)
		}
	}
}

// Two URLs that lead to one server would vote twice. It is found by its run_id,
// before anything is locked: when it can be reached at once, by Open, else by
// the first lock that reaches it.
func TestOneServerUnderTwoURLs(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		other := redistest.New(t, redistest.Options{Binary: binary})
		proxy := redistest.NewProxy(t, server.Addr())
		c := config(server.URL(), other.URL(), proxy.URL())
		told := func(err error) {
			t.Helper()
			if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "n0") || !strings.Contains(err.Error(), "n2") ||
				!strings.Contains(err.Error(), "Nodes") || !strings.Contains(err.Error(), "once") {
				t.Errorf("%v", err)
			}
		}
		// Open waits for the slowest of three only a little longer than for the others.
		var err error
		await(t, "Open finds it", func() bool {
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
		client := open(t, c) // it cannot know
		unlock(t, tryLock(t, client, "x"))
		if err := proxy.Refuse(false); err != nil {
			t.Fatal(err)
		}
		await(t, "it is found when both are reached", func() bool {
			lock, err := client.TryLock(t.Context(), "x")
			if err != nil {
				told(err)
				return true
			}
			unlock(t, lock)
			return false
		})
		_, err = client.Lock(within(t, patience), "x")
		told(err)
		if keys := lockKeys(t, server); len(keys) > 0 {
			await(t, "nothing is locked", func() bool { return len(lockKeys(t, server)) == 0 })
		}
	})
}

// What a call asks for is checked before anything is sent.
func TestInvalidCalls(t *testing.T) {
	t.Parallel()
	server := shared(t, 1)[0]
	proxy := redistest.NewProxy(t, server.Addr())
	client := open(t, config(proxy.URL()))
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
		{"negative TTL", "x", []redlatch.Option{redlatch.WithTTL(-time.Second)}, []string{"WithTTL"}},
		{"TTL below the grain", "x", []redlatch.Option{redlatch.WithTTL(999 * time.Microsecond)}, []string{"WithTTL", "1ms"}},
		{"TTL below its drift", "x", []redlatch.Option{redlatch.WithTTL(2 * time.Millisecond)}, []string{"WithTTL", "drift"}},
		{"TTL that is cut below its drift", "x", []redlatch.Option{redlatch.WithTTL(2900 * time.Microsecond)}, []string{"WithTTL"}},
		{"TTL beyond MaxTTL", "x", []redlatch.Option{redlatch.WithTTL(time.Minute)}, []string{"WithTTL", "MaxTTL", "30s"}},
		{"guard as long as the TTL", "x", []redlatch.Option{redlatch.WithTTL(time.Second), redlatch.WithGuard(time.Second)}, []string{"WithGuard"}},
		{"negative guard", "x", []redlatch.Option{redlatch.WithGuard(-1)}, []string{"WithGuard"}},
		{"no hold", "x", []redlatch.Option{redlatch.WithMaxHold(0)}, []string{"WithMaxHold"}},
		{"label", "x", []redlatch.Option{redlatch.WithLabel("a\tb")}, []string{"WithLabel", "printable"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, tried := client.TryLock(t.Context(), c.lock, c.options...)
			_, waited := client.Lock(within(t, patience/4), c.lock, c.options...)
			done := client.Do(within(t, patience/4), c.lock, func(context.Context) error { t.Error("done"); return nil }, c.options...)
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
	server := shared(t, 1)[0]
	base := config(server.URL())
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
			cfg := config(server.URL())
			cfg.TTL, cfg.MaxTTL, cfg.NodeTimeout = c.ttl, c.maxTTL, base.NodeTimeout
			client := open(t, cfg)
			start := time.Now()
			lock := tryLock(t, client, t.Name())
			if valid, want := lock.Until().Sub(start), c.want-c.want/100-2*time.Millisecond; valid < want || valid > want+time.Since(start) {
				t.Errorf("valid for %v, want %v", valid, want)
			}
			if left := remaining(t, server, t.Name()); left > c.want || left < c.want-time.Since(start)-time.Millisecond {
				t.Errorf("the server keeps it for %v, want %v", left, c.want)
			}
			unlock(t, lock)
			unlock(t, tryLock(t, client, t.Name(), redlatch.WithTTL(c.most)))
			if _, err := client.TryLock(t.Context(), t.Name(), redlatch.WithTTL(c.most+time.Millisecond)); !errors.Is(err, redlatch.ErrInvalid) {
				t.Errorf("a TTL beyond the longest: %v", err)
			}
		})
	}
}

// A Unix socket, a database and a user's name reach the server.
func TestSocketsAndDatabases(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Unix: true, Users: []string{"alice on >secret ~* +@all"}})
		client := open(t, config("unix://alice:secret@"+server.Socket()+"?db=3"))
		lock := tryLock(t, client, "x")
		other := open(t, config(server.URLAs("alice", "secret")+"/3"))
		if _, err := tryInTime(t, other, "x"); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("the same database by another way: %v", err)
		}
		unlock(t, tryLock(t, open(t, config(server.URL())), "x")) // database 0
		unlock(t, lock)
		unlock(t, tryLock(t, other, "x"))
	})
}

// Names with any bytes are keys as they are; only the template changes them.
func TestNamesAndTemplates(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := sharedOf(t, binary, 3)
		names := []string{"a", "{", "}", "{}", "}{", "{a}b", "a{b}c}", "{{a}}", "{name}", "a b", "a\r\nb", "a\x00b", "ünïcødé", "%s%d", "\xff\xfe", strings.Repeat("n", 450)}
		for _, template := range []string{"", "redlock:{name}", "{{name}}:lock", "x{name}}y"} {
			c := config(redistest.URLs(nodes)...)
			c.KeyTemplate = template
			client, other := open(t, c), open(t, c)
			for _, name := range names {
				name += "/" + t.Name()
				key := name
				if template != "" {
					key = strings.Replace(template, "{name}", name, 1)
				}
				lock := tryLock(t, client, name)
				if lock.Name() != name {
					t.Errorf("%q is called %q", name, lock.Name())
				}
				for _, s := range nodes {
					await(t, fmt.Sprintf("%q is the key of %q", key, name), func() bool { return value(t, s, key) != "" })
				}
				if _, err := tryInTime(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("%q: %v", name, err)
				}
				if err := lock.Extend(t.Context(), 20*time.Second); err != nil {
					t.Errorf("%q: %v", name, err)
				}
				unlock(t, lock)
				for _, s := range nodes {
					awaitValue(t, s, key, "")
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
			c := config(server.URL())
			c.Nodes = []string{server.URL() + "#" + strings.ReplaceAll(name, "%", "%25")}
			client, err := redlatch.Open(c)
			if err != nil {
				if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Nodes[0]") {
					t.Errorf("%v", err)
				}
				return
			}
			defer client.Close()
			lock, err := client.TryLock(t.Context(), t.Name())
			if err != nil {
				t.Fatal(err)
			}
			unlock(t, lock)
		})
	}
}
