package restart

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// onDisk is what Config.Durable asks of a server.
var onDisk = []string{"--appendonly", "yes", "--appendfsync", "always"}

// set changes a setting, so that a restart keeps it.
func set(t *testing.T, s *redistest.Server, setting, value string) {
	t.Helper()
	locktest.Do(t, s, "CONFIG", "SET", setting, value)
	locktest.Do(t, s, "CONFIG", "REWRITE")
}

// A node that restarts with its file is admitted at once on the deployment's word alone, and
// where nothing was ever seen that speaks against it.
func TestDurable(t *testing.T) {
	t.Parallel()
	// seen has a client come that looks at the node and votes.
	seen := func(t *testing.T, c redlatch.Config, _ *redistest.Server) {
		locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, c), "seen"))
	}
	toAlways := func(t *testing.T, _ redlatch.Config, s *redistest.Server) {
		locktest.Do(t, s, "CONFIG", "SET", "appendonly", "yes")
		set(t, s, "appendfsync", "always")
		awaitFile(t, s)
	}
	type action = func(*testing.T, redlatch.Config, *redistest.Server)
	cases := []struct {
		name    string
		args    []string
		durable bool
		// happens before the node is killed, which has granted a lock.
		happens []action
		trusted bool
		// void: the word does not count until it is said again.
		void bool
	}{
		{name: "no word", args: onDisk},
		{name: "its word", args: onDisk, durable: true, trusted: true},
		{name: "everysec when it granted", args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}, durable: true, happens: []action{toAlways}, void: true},
		{name: "no file when it granted", durable: true, happens: []action{toAlways}, void: true},
		{name: "everysec for a while, seen by one who came then", args: onDisk, durable: true, happens: []action{
			func(t *testing.T, _ redlatch.Config, s *redistest.Server) { set(t, s, "appendfsync", "everysec") }, seen, toAlways}, void: true},
		{name: "no sync while the file is rewritten", args: append([]string{"--no-appendfsync-on-rewrite", "yes"}, onDisk...), durable: true},
		{name: "no sync while the file is rewritten, for a while", args: append([]string{"--no-appendfsync-on-rewrite", "yes"}, onDisk...), durable: true, happens: []action{
			func(t *testing.T, _ redlatch.Config, s *redistest.Server) {
				set(t, s, "no-appendfsync-on-rewrite", "no")
			}}, void: true},
		{name: "settings changed behind its back before the restart", args: onDisk, durable: true, happens: []action{
			func(t *testing.T, _ redlatch.Config, s *redistest.Server) { set(t, s, "appendfsync", "everysec") }}},
	}
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := redistest.New(t, redistest.Options{Binary: binary, Args: c.args})
				conf := locktest.WithMaxTTL(locktest.WithQuarantine(s.URL()), 30*time.Second)
				conf.Durable = c.durable
				client := locktest.Open(t, conf)
				locktest.Vouch(t, client, "n0")
				held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
				for _, happens := range c.happens {
					happens(t, conf, s)
				}
				locktest.KillAndRestart(t, s)
				checkRestarted(t, client, conf, c.trusted, held)
				if !c.void {
					return
				}

				if r := locktest.Examine(t, conf)[0].Recorded; r == nil || !r.Durable || r.Void == "" {
					t.Errorf("recorded: %+v", r)
				}
				// It is said again, and true from now on.
				if err := client.Reset(t.Context(), "n0"); err != nil {
					t.Fatal(err)
				}
				locktest.Vouch(t, client, "n0")
				held, err := locktest.AwaitAnswer(t, client, "y")
				if err != nil {
					t.Fatal(err)
				}
				locktest.KillAndRestart(t, s)
				checkRestarted(t, client, conf, true, held)
			})
		}
	})
}

// A node is believed that restarts from a file which lacks a lock, also where clients saw that it had none for a while:
// what they recorded is not in it. The page with what there is only a word for says so.
func TestDurableFromAnotherFile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/restarts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, risks, _ := strings.Cut(string(page), "## What there is only your word for")
	for said, from := range map[string]func(t *testing.T, conf redlatch.Config, s *redistest.Server) (restart func()){
		"`appendonly no` for a while": func(t *testing.T, conf redlatch.Config, s *redistest.Server) func() {
			locktest.Do(t, s, "CONFIG", "SET", "appendonly", "no")
			locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, conf), "seen"))
			if r := locktest.Examine(t, conf)[0].Recorded; r == nil || r.Void == "" {
				t.Errorf("nobody has recorded what was seen: %+v", r)
			}
			return func() { locktest.KillAndRestart(t, s) }
		},
		"before the new file is written": func(t *testing.T, conf redlatch.Config, s *redistest.Server) func() {
			locktest.Do(t, s, "CONFIG", "SET", "appendonly", "no")
			locktest.Do(t, s, "CONFIG", "SET", "rdb-key-save-delay", "5000000") // in µs for each key
			locktest.Do(t, s, "CONFIG", "SET", "appendonly", "yes")
			client := locktest.Open(t, conf)
			if err := client.Reset(t.Context(), "n0"); err != nil { // which says the word again
				t.Fatal(err)
			}
			locktest.Vouch(t, client, "n0")
			return func() { locktest.KillAndRestart(t, s) }
		},
		"another server's file": func(t *testing.T, conf redlatch.Config, s *redistest.Server) func() {
			another := redistest.New(t, redistest.Options{Args: onDisk})
			locktest.Vouch(t, locktest.Open(t, locktest.Through(conf, another.URL())), "n0")
			copied := filepath.Join(t.TempDir(), "data")
			if err := another.CopyData(copied); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := s.RestartWith(t.Context(), copied); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			s := redistest.New(t, redistest.Options{Args: onDisk})
			conf := locktest.WithMaxTTL(locktest.WithQuarantine(s.URL()), 30*time.Second)
			conf.Durable = true
			client := locktest.Open(t, conf)
			locktest.Vouch(t, client, "n0")
			restart := from(t, conf, s)
			held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
			restart()
			_, err := locktest.AwaitAnswer(t, locktest.Open(t, conf), "x")
			if err == nil && held.Err() == nil && !strings.Contains(risks, said) {
				t.Errorf("a second holder, and docs/restarts.md does not say that it is possible by %s", said)
			}
		})
	}
}

// awaitFile waits until the server has an append-only file of all that it has.
func awaitFile(t *testing.T, s *redistest.Server) {
	t.Helper()
	locktest.Await(t, "the append-only file is there", func() bool {
		info, err := s.Info("persistence")
		return err == nil && info["aof_enabled"] == "1" && info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0"
	})
}

// checkRestarted asks a node that was killed while held was held for its vote.
func checkRestarted(t *testing.T, client *redlatch.Client, c redlatch.Config, trusted bool, held *redlatch.Lock) {
	t.Helper()
	lock, err := locktest.AwaitAnswer(t, client, "other")
	_, again := locktest.AwaitAnswer(t, locktest.Open(t, c), held.Name())
	switch {
	case trusted && err != nil:
		t.Fatalf("not trusted: %v", err)
	case trusted && !errors.Is(again, redlatch.ErrHeld) && held.Err() == nil:
		t.Fatalf("the lock of before: %v, want ErrHeld", again)
	case !trusted && !errors.Is(err, redlatch.ErrNotAdmitted):
		t.Fatalf("got lock %v, error %v, want ErrNotAdmitted", lock, err)
	case !trusted && !errors.Is(again, redlatch.ErrNotAdmitted):
		t.Fatalf("another client: %v, want ErrNotAdmitted", again)
	}
}

// Where the settings are not shown, they are not presumed.
func TestDurableUnseen(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		s := redistest.New(t, redistest.Options{Binary: binary, Args: onDisk, Users: []string{"app on >p ~* &* +@all -config"}})
		c := locktest.WithMaxTTL(locktest.WithQuarantine(s.URLAs("app", "p")), 30*time.Second)
		c.Durable = true
		client := locktest.Open(t, c)
		locktest.Vouch(t, client, "n0")
		held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		locktest.KillAndRestart(t, s)
		checkRestarted(t, client, c, false, held)
		// To one who sees that they are right, they are: nobody saw anything else.
		checkRestarted(t, locktest.Open(t, locktest.Through(c, s.URL())), locktest.Through(c, s.URL()), true, held)
	})
}

// The word is everybody's or nobody's.
func TestDurableIsAgreedOn(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		s := redistest.New(t, redistest.Options{Binary: binary, Args: onDisk})
		plain := locktest.WithMaxTTL(locktest.WithQuarantine(s.URL()), 30*time.Second)
		durable := plain
		durable.Durable = true
		for i, first := range []redlatch.Config{plain, durable} {
			other := []redlatch.Config{durable, plain}[i]
			client := locktest.Open(t, first)
			if i > 0 {
				if err := client.Reset(t.Context(), "n0"); err != nil {
					t.Fatal(err)
				}
			}
			locktest.Vouch(t, client, "n0")
			locktest.Unlock(t, locktest.TryLock(t, client, "x"))
			for range 2 {
				if _, err := locktest.TryInTime(t, locktest.Open(t, other), "x"); !isDisagreement(err, "Durable") {
					t.Errorf("Durable=%t where it is %t: got %v, want ErrInvalid", other.Durable, first.Durable, err)
				}
				locktest.KillAndRestart(t, s)
			}
			if lock, err := locktest.AwaitAnswer(t, client, "y"); (err == nil) != first.Durable {
				t.Errorf("Durable=%t: lock %v, error %v", first.Durable, lock, err)
			}
		}
	})
}

func TestDurableIsRefused(t *testing.T) {
	t.Parallel()
	s := locktest.Shared(t, 1)[0]
	proxy := redistest.NewProxy(t, s.Addr())
	for what, change := range map[string]func(*redlatch.Config){
		"NoQuarantine": func(c *redlatch.Config) { c.NoQuarantine = true },
		"Sentinel":     func(c *redlatch.Config) { c.Nodes = []string{proxy.URL() + "?master_set=m"} },
		"Cluster":      func(c *redlatch.Config) { c.Nodes = []string{proxy.URL() + "?cluster"} },
		"by members":   func(c *redlatch.Config) { c.Nodes = []string{proxy.URL() + "?addr=127.0.0.1:1"} },
	} {
		c := locktest.WithQuarantine(proxy.URL())
		c.Durable = true
		change(&c)
		client, err := redlatch.Open(c)
		if err == nil {
			client.Close()
		}
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Config.Durable") {
			t.Errorf("%s: got %v, want ErrInvalid that names Config.Durable", what, err)
		}
		if _, err := doctor.Examine(t.Context(), c); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: Examine: got %v, want ErrInvalid", what, err)
		}
	}
	if stats := proxy.Stats(); stats.Accepted != 0 {
		t.Errorf("%d connections were made", stats.Accepted)
	}
}
