package redistest

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// each runs a test on every installed kind of server.
func each(t *testing.T, test func(t *testing.T, o Options)) {
	t.Helper()
	flavors := Flavors()
	if len(flavors) == 0 {
		t.Fatal(ErrNoServer)
	}
	for _, f := range flavors {
		t.Run(f, func(t *testing.T) {
			t.Parallel()
			test(t, Options{Binary: f})
		})
	}
}

// do runs a command that must succeed.
func do(t *testing.T, s *Server, args ...string) any {
	t.Helper()
	v, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

func want[T comparable](t *testing.T, what string, got any, want T) {
	t.Helper()
	if v, ok := got.(T); !ok || v != want {
		t.Fatalf("%s: got %#v, want %#v", what, got, want)
	}
}

func TestServerAnswers(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := New(t, o)
		want(t, "SET", do(t, s, "SET", "k", "a value\r\n"), "OK")
		want(t, "GET", do(t, s, "GET", "k"), "a value\r\n")
		want(t, "INCR", do(t, s, "INCR", "n"), int64(1))
		if v := do(t, s, "GET", "none"); v != nil {
			t.Fatalf("GET none: %v, want nil", v)
		}
		v, _ := do(t, s, "MGET", "k", "none").([]any)
		if len(v) != 2 || v[0] != "a value\r\n" || v[1] != nil {
			t.Fatalf("MGET: %#v", v)
		}
		_, err := s.Do("INCR", "k")
		if e, ok := errors.AsType[ServerError](err); !ok || e.Code() != "ERR" {
			t.Fatalf("INCR of a text: %v, want the server's ERR", err)
		}
		if want := "redis://" + s.Addr(); s.URL() != want {
			t.Fatalf("URL is %s, want %s", s.URL(), want)
		}
	})
}

func TestServerForgetsOnRestart(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := New(t, o)
		do(t, s, "SET", "k", "v")
		before := s.PID()
		s.Kill()
		if s.Running() {
			t.Fatal("running after Kill")
		}
		if _, err := s.Do("PING"); err == nil {
			t.Fatal("answers after Kill")
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.PID() == before {
			t.Fatalf("restarted under the same pid %d", before)
		}
		want(t, "EXISTS after a restart", do(t, s, "EXISTS", "k"), int64(0))
	})
}

func TestServerKeepsItsFile(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Args = []string{"--appendonly", "yes", "--appendfsync", "always"}
		s := New(t, o)
		do(t, s, "SET", "k", "v")
		s.Kill()
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "GET after a crash", do(t, s, "GET", "k"), "v")
		if err := s.RestartEmpty(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "EXISTS after RestartEmpty", do(t, s, "EXISTS", "k"), int64(0))
	})
}

func TestServerStopWritesItsSnapshot(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Args = []string{"--save", "3600", "1"}
		s := New(t, o)
		do(t, s, "SET", "k", "v")
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "GET after Stop", do(t, s, "GET", "k"), "v")
	})
}

func TestServerPause(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := New(t, o)
		c, err := s.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := c.Send("PING"); err != nil {
			t.Fatal(err)
		}
		// The server has stopped by the time Pause returned, so nothing can
		// come, however long one waits; 20 ms catch one that has not.
		if err := c.nc.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if b, err := c.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a frozen server answered %q, %v", b, err)
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		v, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		want(t, "PING after Resume", v, "PONG")

		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		if s.Running() {
			t.Fatal("a frozen server survived Kill")
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(); err != nil {
			t.Fatalf("stopping a frozen server: %v", err)
		}
	})
}

func TestNodesAreIndependent(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		servers := Nodes(t, 5, o)
		seen := map[string]bool{}
		for i, s := range servers {
			do(t, s, "SET", "k", s.Addr())
			want(t, "GET", do(t, s, "GET", "k"), s.Addr())
			seen[URLs(servers)[i]] = true
		}
		if len(seen) != 5 {
			t.Fatalf("5 nodes have %d addresses", len(seen))
		}
	})
}

// Every start races for a port with all others; a stranger who binds without
// reserving is played by the listener below.
func TestStartGetsOverATakenPort(t *testing.T) {
	s := New(t)
	_, err := Start(t.Context(), Options{Port: s.Port()})
	if err == nil || !strings.Contains(err.Error(), "Options.Port") {
		t.Fatalf("starting on a port of another Server: %v, want one that says so", err)
	}
	// The same without the reservation: the server itself must find out.
	other := &Server{opts: s.opts, bin: s.bin, turn: make(chan struct{}, 1)}
	if err := other.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = other.runOn(t.Context(), s.Port())
	other.port = 0
	defer other.Close()
	if !errors.Is(err, errPortTaken) {
		t.Fatalf("binding a port that is taken: %v, want errPortTaken", err)
	}
}

func TestStartReportsTheLog(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Args = []string{"--no-such-setting", "1"}
		_, err := Start(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
			t.Fatalf("a bad setting: %v, want an error with the server's words", err)
		}
	})
}

func TestStartWithoutBinary(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Start(t.Context(), Options{})
	if !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Fatalf("without a server installed: %v, want ErrNoServer and its remedy", err)
	}
}

func TestStartStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled start: %v, want context.Canceled", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s, err := Start(t.Context(), Options{Unix: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.Running() {
		t.Fatal("running after Close")
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the directory after Close: %v, want it gone", err)
	}
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Fatalf("the log after Close: %q", s.Log())
	}
	if err := s.Restart(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("Restart after Close: %v, want ErrClosed", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
}

// Everything at once, for the race detector; the server must be usable after.
func TestServerConcurrentUse(t *testing.T) {
	s := New(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 5 {
				switch i {
				case 0:
					s.Kill()
				case 1:
					if err := s.Restart(t.Context()); err != nil {
						t.Error(err)
					}
				case 2:
					_, _ = s.Do("PING") // it may be down
				case 3:
					_, _, _ = s.PID(), s.Running(), s.Log()
				}
			}
		})
	}
	wg.Wait()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "PING", do(t, s, "PING"), "PONG")
}
