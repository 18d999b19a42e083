package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/redistest"
)

// patience bounds what must happen; it says nothing about how fast.
const patience = 40 * time.Second

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
	o.ConnectTimeout = 2 * replyTimeout
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

// sends calls send again where its command was not sent: a busy machine may be late, and Sentinels have to be asked first then.
func sends(send func() error) error {
	for deadline := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		err := send()
		if !errors.Is(err, driver.ErrNotSent) || time.Now().After(deadline) {
			return err
		}
	}
}

// promptly calls try until it takes much less than replyTimeout, which ends what hangs. On a busy machine it may take longer
// by chance.
func promptly(t *testing.T, what string, try func()) {
	t.Helper()
	for range 5 {
		start := time.Now()
		if try(); time.Since(start) < replyTimeout/2 {
			return
		}
	}
	t.Errorf("%s takes %v or more each time", what, replyTimeout/2)
}

func must(t *testing.T, c driver.Conn, args ...string) (reply driver.Reply) {
	t.Helper()
	err := sends(func() (err error) { reply, err = c.Do(within(t, patience), args...); return err })
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
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

// As many commands as callers may have under way at once do not block beyond
// their ctx while the server answers nothing.
func TestCallersLeaveAHungServer(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for range 5 { // a busy machine may take long with callers who do not wait
		c := connect(t, server.URL())
		must(t, c, "SET", "n", "0")
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
		callers.Wait()
		soon := c.Connections() == 1 // before the connection is given up for its silence
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		r := must(t, c, "INCRBY", "n", "0")
		if r.Int > RingSize-100 {
			t.Errorf("%d of %d were executed", r.Int, RingSize-100)
		}
		// Those who had no time left to send are not among them.
		if soon && r.Int > 0 {
			return
		}
	}
	t.Error("callers are blocked beyond their ctx, or none sends")
}

// A caller whose ctx ends while a connection is being made to a server that hangs does not wait for it.
func TestCallerLeavesWhileConnecting(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	var late atomic.Int32
	for n := range 40 {
		patience := time.Duration(n%20+1) * time.Millisecond / 4
		var callers sync.WaitGroup
		for range 8 { // which are in each other's way, so that the ctx of some ends between two steps
			c := connect(t, server.URL())
			callers.Go(func() {
				ctx := within(t, patience)
				start := time.Now()
				if _, err := c.Do(ctx, "SET", "k", "v"); err == nil {
					t.Error("a stopped server answered")
				}
				if time.Since(start) > patience+700*time.Millisecond {
					late.Add(1)
				}
			})
		}
		callers.Wait()
		if late.Load() >= 8 { // a busy machine may be late, but not so often
			t.Fatalf("callers are blocked long after their ctx: %d of %d", late.Load(), 8*(n+1))
		}
	}
}

// Close does not wait for a connection that is being made to a server that hangs.
func TestCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*tls.Config{"plain": nil, "TLS": {InsecureSkipVerify: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			promptly(t, "Close", func() {
				c := open(t, Options{Network: "tcp", Address: silent.Addr().String(), TLS: config})
				var out error
				var waiting sync.WaitGroup
				waiting.Go(func() { _, out = c.Do(context.Background(), "SET", "k", "v") })
				peer, err := silent.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer peer.Close()
				c.Close()
				waiting.Wait()
				if out == nil {
					t.Error("who waited for it has no error")
				}
			})
		})
	}
}

// Close ends a connection that is being made also where the server has answered a part of what sets it
// up, and leaves none behind when the rest comes.
func TestCloseWhileSettingUp(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	promptly(t, "the end of the connection after Close", func() {
		c := open(t, Options{Network: "tcp", Address: server.Addr().String(), Database: 1})
		var waiting sync.WaitGroup
		waiting.Go(func() { c.Do(context.Background(), "SET", "k", "v") })
		peer, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		io.WriteString(peer, redistest.Helloed)
		for !c.answered.Load() {
			time.Sleep(time.Millisecond)
		}
		c.Close()
		io.WriteString(peer, "+OK\r\n")
		peer.SetReadDeadline(time.Now().Add(replyTimeout / 2))
		io.ReadAll(peer)
		peer.Close()
		waiting.Wait()
	})
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

// What Sentinels say of where the master is becomes part of errors.
func TestSentinelNamesNoAddress(t *testing.T) {
	t.Parallel()
	sentinel := redistest.NewFake(t, "", func(c redistest.Command) string {
		switch c.Name() {
		case "HELLO":
			return "-ERR unknown command 'HELLO'\r\n"
		case "SENTINEL":
			return "*2\r\n$8\r\n\x1b[2Jmain\r\n$4\r\n6379\r\n"
		}
		return ""
	})
	c := open(t, Options{Network: "tcp", Address: sentinel.Addr(), Master: "main"})
	_, err := c.Do(within(t, patience), "PING")
	if err == nil || !strings.Contains(err.Error(), `names a master at "\x1b[2Jmain:6379"`) || !printable.Is(err.Error()) {
		t.Errorf("%q", fmt.Sprint(err))
	}
}
