package redisconn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// patience bounds what must happen; it says nothing about how fast.
const patience = 20 * time.Second

// connect returns a connection to the server or proxy behind url.
func connect(t *testing.T, url string) *Conn {
	t.Helper()
	o, _, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, o)
}

func open(t *testing.T, o Options) *Conn {
	t.Helper()
	o.ConnectTimeout = 5 * time.Second
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, c *Conn, args ...string) driver.Reply {
	t.Helper()
	reply, err := c.Do(within(t, patience), args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// unknown reports whether err leaves open if the command was executed.
func unknown(err error) bool {
	_, refused := errors.AsType[*driver.ServerError](err)
	return err != nil && !refused && !errors.Is(err, driver.ErrNotSent)
}

func seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if env := os.Getenv("REDLATCH_SEED"); env != "" {
		var err error
		if seed, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("REDLATCH_SEED=%d replays this", seed)
	return seed
}

// eachFlavor runs f on every kind of server installed.
func eachFlavor(t *testing.T, f func(t *testing.T, binary string)) {
	t.Helper()
	flavors := redistest.Flavors()
	if len(flavors) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	for _, binary := range flavors {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			f(t, binary)
		})
	}
}

// Every kind of reply, over the wire of a real server.
func TestReplies(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		c := connect(t, redistest.New(t, redistest.Options{Binary: binary}).URL())
		if r := must(t, c, "GET", "none"); r.Kind != driver.Null {
			t.Errorf("no key: %+v", r)
		}
		if r := must(t, c, "SET", "k", "v\r\n\x00ü"); r.Kind != driver.Text || r.Text != "OK" {
			t.Errorf("SET: %+v", r)
		}
		if r := must(t, c, "GET", "k"); r.Kind != driver.Text || r.Text != "v\r\n\x00ü" {
			t.Errorf("GET: %+v", r)
		}
		if r := must(t, c, "SET", "k", "w", "NX"); r.Kind != driver.Null {
			t.Errorf("SET NX: %+v", r)
		}
		if r := must(t, c, "INCRBY", "n", "-9007199254740991"); r.Kind != driver.Int || r.Int != -9007199254740991 {
			t.Errorf("INCRBY: %+v", r)
		}
		r := must(t, c, "EVAL", "return {1, 'a', {2, false}, {}}", "0")
		if r.Kind != driver.Array || len(r.Array) != 4 || r.Array[0].Int != 1 || r.Array[1].Text != "a" ||
			r.Array[2].Array[0].Int != 2 || r.Array[2].Array[1].Kind != driver.Null ||
			r.Array[3].Kind != driver.Array || len(r.Array[3].Array) != 0 {
			t.Errorf("EVAL: %+v", r)
		}
		if r := must(t, c, "CONFIG", "GET", "appendfsync"); len(r.Array) != 2 || r.Array[0].Text != "appendfsync" || r.Array[1].Text == "" {
			t.Errorf("CONFIG GET: %+v", r)
		}
		// Reported whole, with the code first.
		_, err := c.Do(t.Context(), "LPUSH", "k", "x")
		refusal, ok := errors.AsType[*driver.ServerError](err)
		if !ok || refusal.Code() != "WRONGTYPE" || refusal.Text != "WRONGTYPE Operation against a key holding the wrong kind of value" {
			t.Errorf("LPUSH to a string: %v", err)
		}
		_, err = c.EvalSHA(t.Context(), "ffffffffffffffffffffffffffffffffffffffff", []string{"k"}, []string{"a"})
		if refusal, ok := errors.AsType[*driver.ServerError](err); !ok || refusal.Code() != "NOSCRIPT" {
			t.Errorf("an unknown script: %v", err)
		}
		sha := must(t, c, "SCRIPT", "LOAD", "return {KEYS[1], ARGV[1], ARGV[2]}").Text
		if r, err := c.EvalSHA(t.Context(), sha, []string{"k"}, []string{"a", ""}); err != nil || len(r.Array) != 3 || r.Array[0].Text != "k" || r.Array[1].Text != "a" || r.Array[2].Text != "" {
			t.Errorf("a loaded script: %+v, %v", r, err)
		}
		if n := c.Connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// Nothing is sent, and nobody is connected to, before the first command.
func TestConnectsWhenNeeded(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	if n := c.Connections(); n != 0 {
		t.Errorf("%d connections before the first command", n)
	}
	must(t, c, "PING")
	if s := proxy.Stats(); c.Connections() != 1 || s.Accepted != 1 {
		t.Errorf("%d connections, %d accepted", c.Connections(), s.Accepted)
	}
}

// Callers that leave before the answer, on a link whose every message takes a
// different time: what a later call sends is executed later. A pool of
// connections fails this in most tries.
func TestLaterCallIsExecutedLater(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		base := seed(t)
		server := redistest.New(t, redistest.Options{Binary: binary})
		proxy := redistest.NewProxy(t, server.Addr(), redistest.ProxyOptions{Seed: base})
		c := connect(t, proxy.URL())
		must(t, c, "PING")
		proxy.Delay(redistest.Both, 0, 3*time.Millisecond)
		var callers sync.WaitGroup
		var abandoned atomic.Int32
		const tries = 200
		for worker := range uint64(10) {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(base, worker))
				for i := range tries / 10 {
					key := fmt.Sprintf("%d.%d", worker, i)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(5000))*time.Microsecond)
					if _, err := c.Do(ctx, "SET", key, "mine", "NX", "PX", "60000"); err != nil {
						abandoned.Add(1)
					}
					cancel()
					if _, err := c.Do(within(t, patience), "DEL", key); err != nil {
						t.Errorf("DEL %s: %v", key, err)
					}
				}
			})
		}
		callers.Wait()
		if r := must(t, c, "DBSIZE"); r.Int != 0 {
			t.Errorf("%d of %d keys were set after their deletion", r.Int, tries)
		}
		t.Logf("%d of %d callers left before the answer", abandoned.Load(), tries)
		if n := c.Connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// The connection breaks at a command, before or after the server executed it:
// the caller is told that the outcome is not known, and it is not sent again.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		actions := []struct {
			name   string
			action redistest.Action
			count  int64
		}{{"cut before", redistest.CutBefore, 0}, {"cut after", redistest.CutAfter, 1}}
		for _, a := range actions {
			for _, script := range []bool{false, true} {
				name := fmt.Sprintf("%s script=%t", a.name, script)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					proxy := redistest.NewProxy(t, server.Addr())
					c := connect(t, proxy.URL())
					sha := must(t, c, "SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])").Text
					proxy.OnCommand(func(cmd redistest.Command) redistest.Action {
						if cmd.Name() == "INCR" || cmd.Name() == "EVALSHA" {
							return a.action
						}
						return redistest.Pass
					})
					var err error
					if script {
						_, err = c.EvalSHA(within(t, patience), sha, []string{name}, nil)
					} else {
						_, err = c.Do(within(t, patience), "INCR", name)
					}
					if !unknown(err) {
						t.Errorf("the error of a broken connection is %v", err)
					}
					proxy.OnCommand(nil)
					r := must(t, c, "INCRBY", name, "0")
					if r.Int != a.count {
						t.Errorf("executed %d times, want %d", r.Int, a.count)
					}
					if s := proxy.Stats(); s.Seen["INCR"]+s.Seen["EVALSHA"] != 1 {
						t.Errorf("sent: %v", s.Seen)
					}
					if n := c.Connections(); n != 3 {
						t.Errorf("%d connections made and broken, want 3", n)
					}
				})
			}
		}
	})
}

// Many commands are under way when the connection breaks: each was executed at
// most once, and each caller that was told of success was right.
func TestAtMostOnceInAPipeline(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	must(t, c, "PING")
	rng := rand.New(rand.NewPCG(seed(t), 0))
	for round := range 20 {
		at := 1 + rng.IntN(50)
		var seen atomic.Int32
		proxy.OnCommand(func(cmd redistest.Command) redistest.Action {
			if cmd.Name() == "INCR" && int(seen.Add(1)) == at {
				return []redistest.Action{redistest.CutBefore, redistest.CutAfter}[round%2]
			}
			return redistest.Pass
		})
		var callers sync.WaitGroup
		var mu sync.Mutex
		outcome := make(map[string]error)
		for i := range 50 {
			callers.Go(func() {
				key := fmt.Sprintf("%d.%d", round, i)
				_, err := c.Do(within(t, patience), "INCR", key)
				mu.Lock()
				outcome[key] = err
				mu.Unlock()
			})
		}
		callers.Wait()
		proxy.OnCommand(nil)
		for key, err := range outcome {
			value, _ := server.Do("GET", key)
			switch {
			case value != nil && value != "1":
				t.Errorf("round %d: %s was executed %v times", round, key, value)
			case err == nil && value == nil:
				t.Errorf("round %d: %s was not executed and its caller was told of success", round, key)
			case errors.Is(err, driver.ErrNotSent) && value != nil:
				t.Errorf("round %d: %s was executed and its caller was told that it was not sent", round, key)
			}
		}
	}
}

// What was not sent says so, and the server never hears of it.
func TestNotSent(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())

	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for range 2 { // before a connection stands, and after
		_, err := c.Do(ctx, "SET", "k", "v")
		if !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, cause) {
			t.Errorf("ctx was done: %v", err)
		}
		_, err = c.EvalSHA(ctx, "00", nil, nil)
		if !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, cause) {
			t.Errorf("ctx was done: %v", err)
		}
		must(t, c, "PING")
	}
	if n := proxy.Commands(); n["SET"]+n["EVALSHA"] > 0 {
		t.Errorf("sent: %v", n)
	}

	if err := proxy.Refuse(true); err != nil {
		t.Fatal(err)
	}
	refused := connect(t, proxy.URL())
	if _, err := refused.Do(within(t, patience), "SET", "k", "v"); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("the connection was refused: %v", err)
	}
	if err := proxy.Refuse(false); err != nil {
		t.Fatal(err)
	}
	must(t, refused, "PING") // it tries again by itself
}

// ctx ends the caller's wait, not the command.
func TestAbandonedCommandGoesOn(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	must(t, c, "PING")
	proxy.HoldBack(redistest.Requests, true)
	_, err := c.Do(within(t, 10*time.Millisecond), "SET", "k", "v")
	if !unknown(err) {
		t.Errorf("abandoned: %v", err)
	}
	proxy.HoldBack(redistest.Requests, false)
	if r := must(t, c, "GET", "k"); r.Text != "v" {
		t.Errorf("a later command finds %+v", r)
	}
	if n := c.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// As many commands as callers may have under way at once do not block beyond
// their ctx while the server answers nothing.
func TestCallersLeaveAHungServer(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := connect(t, server.URL())
	must(t, c, "PING")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range RingSize - 100 {
		callers.Go(func() {
			if _, err := c.Do(within(t, 50*time.Millisecond), "INCR", "n"); err == nil {
				t.Error("a stopped server answered")
			}
		})
	}
	left := make(chan struct{})
	go func() {
		callers.Wait()
		close(left)
	}()
	select {
	case <-left:
	case <-time.After(patience / 2): // before the connection is given up for its silence
		t.Error("callers are blocked beyond their ctx")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	<-left
	// Those who had no time left to send are not among them.
	if r := must(t, c, "INCRBY", "n", "0"); r.Int == 0 || r.Int > RingSize-100 {
		t.Errorf("%d of %d were executed", r.Int, RingSize-100)
	}
}

// A connection that broke while nobody used it is replaced without an error,
// and the count tells of it.
func TestReconnects(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	for i := range uint64(5) {
		must(t, c, "PING")
		if n := c.Connections(); n != 2*i+1 {
			t.Fatalf("%d connections made and broken, want %d", n, 2*i+1)
		}
		proxy.Cut()
		if err := proxy.Await(within(t, patience), func(s redistest.Stats) bool { return s.Open == 0 }); err != nil {
			t.Fatal(err)
		}
		// The end has been sent; the client reads it in its own time.
		for failed := false; !failed; {
			_, err := c.Do(within(t, patience), "PING")
			failed = err != nil
			if err == nil && c.Connections() == 2*i+3 {
				break
			}
		}
	}
}

// Close ends what is under way, and what comes later is not sent.
func TestClose(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	must(t, c, "PING")
	proxy.BlackHole(redistest.Both, true)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Do(context.Background(), "SET", "k", "v")
		ended <- err
	}()
	if err := proxy.AwaitCommand(within(t, patience), "SET", 1); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c.Close()
	t.Logf("closed in the face of a black hole after %v", time.Since(start).Round(time.Millisecond))
	select {
	case err := <-ended:
		if !unknown(err) {
			t.Errorf("a command under way: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("a command outlived Close")
	}
	if _, err := c.Do(within(t, patience), "SET", "k", "v"); err == nil {
		t.Error("a closed connection took a command")
	}
	c.Close() // a second time is harmless
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Unix: true, Password: "secret"})
	c := connect(t, "unix://:secret@"+server.Socket()+"?db=3")
	must(t, c, "SET", "k", "v")
	direct, err := server.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if _, err := direct.Do("SELECT", "3"); err != nil {
		t.Fatal(err)
	}
	if v, err := direct.Do("GET", "k"); v != "v" {
		t.Errorf("database 3 has %v, %v", v, err)
	}
}
