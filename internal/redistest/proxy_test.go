package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// within is a context for what must happen soon: far longer than it takes, so
// that a loaded machine does not fail a test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, addr string) *Conn {
	t.Helper()
	c, err := Dial(within(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c *Conn, args ...string) {
	t.Helper()
	if err := c.Send(args...); err != nil {
		t.Fatalf("sending %v: %v", args, err)
	}
}

func receive[T comparable](t *testing.T, c *Conn, expected T) {
	t.Helper()
	v, err := c.Receive()
	if err != nil {
		t.Fatalf("waiting for %v: %v", expected, err)
	}
	want(t, "reply", v, expected)
}

func ask[T comparable](t *testing.T, c *Conn, expected T, args ...string) {
	t.Helper()
	send(t, c, args...)
	receive(t, c, expected)
}

// silent fails the test if the connection has something to read, or is closed.
// It can only ever miss a fault, never report one that is not there.
func silent(t *testing.T, c *Conn) {
	t.Helper()
	if err := c.nc.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if b, err := c.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %q, %v, where nothing should come", b, err)
	}
}

// broken fails the test unless the connection ends.
func broken(t *testing.T, c *Conn) {
	t.Helper()
	v, err := c.Receive()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %v, %v from a connection that should be cut", v, err)
	}
}

func settle(t *testing.T, p *Proxy, enough func(Stats) bool) {
	t.Helper()
	if err := p.Await(within(t), enough); err != nil {
		t.Fatal(err)
	}
}

func forwarded(name string, n int) func(Stats) bool {
	return func(s Stats) bool { return s.Forwarded[name] >= n }
}

// behind starts a server and a proxy in front of it.
func behind(t *testing.T, o Options) (*Server, *Proxy) {
	t.Helper()
	s := New(t, o)
	return s, NewProxy(t, s.Addr())
}

func TestProxyPasses(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s, p := behind(t, o)
		c := dial(t, p.Addr())
		ask(t, c, "OK", "SET", "k", "v")
		ask(t, c, "v", "get", "k")
		want(t, "GET at the server", do(t, s, "GET", "k"), "v")
		if n := p.Commands(); n["SET"] != 1 || n["GET"] != 1 || len(n) != 2 {
			t.Fatalf("commands: %v", n)
		}
		st := p.Stats()
		if want := int64(len("+OK\r\n$1\r\nv\r\n")); st.ReplyBytes != want {
			t.Fatalf("%d bytes of replies, want %d", st.ReplyBytes, want)
		}
		if want := int64(len(encode([]string{"SET", "k", "v"})) + len(encode([]string{"get", "k"}))); st.RequestBytes != want {
			t.Fatalf("%d bytes of requests, want %d", st.RequestBytes, want)
		}
		if st.Accepted != 1 || st.Open != 1 || st.Connected != 1 || st.DiscardedBytes != 0 {
			t.Fatalf("counts: %+v", st)
		}
		c.Close()
		settle(t, p, func(s Stats) bool { return s.Open == 0 && s.Connected == 0 })
	})
}

func TestProxyPassesTheEnd(t *testing.T) {
	s, p := behind(t, Options{})
	c := dial(t, p.Addr())
	ask(t, c, "PONG", "PING")
	s.Kill()
	broken(t, c)
	// With nobody behind it, the proxy accepts and ends the connection.
	c, err := Dial(within(t), p.Addr())
	if err == nil { // else the reset came before the dialer had looked
		broken(t, c)
		c.Close()
	}
	settle(t, p, func(s Stats) bool { return s.Open == 0 })
}

func TestProxyDelay(t *testing.T) {
	_, p := behind(t, Options{})
	c := dial(t, p.Addr())
	for _, dir := range []Direction{Requests, Replies, Both} {
		p.Delay(dir, 30*time.Millisecond, 0)
		start := time.Now()
		ask(t, c, "PONG", "PING")
		least := 30 * time.Millisecond
		if dir == Both {
			least *= 2
		}
		if took := time.Since(start); took < least {
			t.Fatalf("direction %d: a delayed round trip took %v, want %v at least", dir, took, least)
		}
		p.Delay(Both, 0, 0)
	}
	// What waits is let go when the delay is lifted.
	p.Delay(Replies, time.Hour, time.Hour)
	send(t, c, "PING")
	settle(t, p, forwarded("PING", 4))
	silent(t, c)
	p.Delay(Replies, 0, 0)
	receive(t, c, "PONG")
}

func TestProxyKeepsTheOrderOfAConnection(t *testing.T) {
	_, p := behind(t, Options{})
	p.Delay(Both, 0, 3*time.Millisecond)
	p.Reorder(1, 3*time.Millisecond)
	c := dial(t, p.Addr())
	const n = 300
	for range n {
		send(t, c, "INCR", "n")
	}
	for i := range n {
		receive(t, c, int64(i+1))
	}
}

func TestProxyDropReplies(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s, p := behind(t, o)
		hit, idle := dial(t, p.Addr()), dial(t, p.Addr())
		ask(t, hit, "PONG", "PING")
		ask(t, idle, "PONG", "PING")
		p.DropReplies(true)
		send(t, hit, "SET", "k", "v")
		settle(t, p, func(s Stats) bool { return s.DiscardedBytes == int64(len("+OK\r\n")) })
		want(t, "GET at the server", do(t, s, "GET", "k"), "v")
		silent(t, hit)
		p.DropReplies(false)
		broken(t, hit)
		ask(t, idle, "PONG", "PING")
	})
}

func TestProxyBlackHole(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s, p := behind(t, o)
		hit, idle := dial(t, p.Addr()), dial(t, p.Addr())
		ask(t, hit, "PONG", "PING")
		ask(t, idle, "PONG", "PING")
		p.BlackHole(Both, true)
		send(t, hit, "SET", "k", "v")
		late := dial(t, p.Addr())
		send(t, late, "SET", "k", "v")
		both := 2 * int64(len(encode([]string{"SET", "k", "v"})))
		settle(t, p, func(s Stats) bool { return s.DiscardedBytes == both })
		want(t, "EXISTS at the server", do(t, s, "EXISTS", "k"), int64(0))
		silent(t, hit)
		silent(t, late)
		if st := p.Stats(); st.Forwarded["SET"] != 0 || st.Seen["SET"] != 2 {
			t.Fatalf("counts: %+v", st)
		}
		// The server's end does not get through either.
		s.Kill()
		silent(t, idle)
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.BlackHole(Both, false)
		broken(t, hit)
		broken(t, late)
		ask(t, dial(t, p.Addr()), "PONG", "PING")
	})
}

// A client that gives up while its bytes vanish must not leave a connection in
// the proxy for ever where there is none to the server.
func TestProxyBlackHoleForgetsWhoLeft(t *testing.T) {
	_, p := behind(t, Options{})
	p.BlackHole(Both, true)
	c := dial(t, p.Addr())
	send(t, c, "PING")
	settle(t, p, func(s Stats) bool { return s.DiscardedBytes > 0 })
	c.Close()
	settle(t, p, func(s Stats) bool { return s.Accepted == 1 && s.Open == 0 })
}

func TestProxyHoldBack(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s, p := behind(t, o)
		c := dial(t, p.Addr())
		ask(t, c, "PONG", "PING")
		p.HoldBack(Requests, true)
		send(t, c, "SET", "k", "v")
		if err := p.AwaitCommand(within(t), "SET", 1); err != nil {
			t.Fatal(err)
		}
		want(t, "EXISTS at the server", do(t, s, "EXISTS", "k"), int64(0))
		p.HoldBack(Replies, true)
		p.HoldBack(Requests, false)
		settle(t, p, forwarded("SET", 1))
		silent(t, c)
		p.HoldBack(Replies, false)
		receive(t, c, "OK")
		want(t, "GET at the server", do(t, s, "GET", "k"), "v")
	})
}

// A held direction stops its sender at some point instead of growing.
func TestProxyHoldBackIsBounded(t *testing.T) {
	_, p := behind(t, Options{})
	p.HoldBack(Requests, true)
	c := dial(t, p.Addr())
	value := string(make([]byte, 1<<20))
	if err := c.nc.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var err error
	sent := 0
	for ; err == nil && sent < 100; sent++ {
		_, err = c.nc.Write(encode([]string{"SET", "k", value}))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d MiB sent into a proxy that holds them back, then %v", sent, err)
	}
	p.Cut()
	settle(t, p, func(s Stats) bool { return s.Open == 0 })
}

func TestProxyCut(t *testing.T) {
	_, p := behind(t, Options{})
	c := dial(t, p.Addr())
	ask(t, c, "PONG", "PING")
	p.Cut()
	if _, err := c.Receive(); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("after Cut: %v, want a reset", err)
	}
	c = dial(t, p.Addr())
	ask(t, c, "PONG", "PING")
	p.Hangup()
	if _, err := c.Receive(); !errors.Is(err, io.EOF) {
		t.Fatalf("after Hangup: %v, want EOF", err)
	}
	ask(t, dial(t, p.Addr()), "PONG", "PING")
}

func TestProxyRefuse(t *testing.T) {
	_, p := behind(t, Options{})
	c := dial(t, p.Addr())
	ask(t, c, "PONG", "PING")
	for range 2 { // saying it twice is saying it once
		if err := p.Refuse(true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Dial(within(t), p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("connecting while refused: %v, want connection refused", err)
	}
	ask(t, c, "PONG", "PING")
	for range 2 {
		if err := p.Refuse(false); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, dial(t, p.Addr()), "PONG", "PING")
}

// A process that is being started may have the listener for a moment after it was closed here.
func TestProxyRefuseWaitsForItsPort(t *testing.T) {
	_, p := behind(t, Options{})
	if err := p.Refuse(true); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp4", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { other.Close() })
	if err := p.Refuse(false); err != nil {
		t.Fatal(err)
	}
	ask(t, dial(t, p.Addr()), "PONG", "PING")
}

func TestProxyRetarget(t *testing.T) {
	a, p := behind(t, Options{})
	b := New(t, Options{Unix: true})
	do(t, a, "SET", "k", "a")
	do(t, b, "SET", "k", "b")
	old := dial(t, p.Addr())
	ask(t, old, "a", "GET", "k")
	p.Retarget(b.Socket())
	ask(t, old, "a", "GET", "k")
	ask(t, dial(t, p.Addr()), "b", "GET", "k")
}
