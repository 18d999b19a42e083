package redistest

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
)

// keptOpen starts a server that keeps its data, and a proxy that hides its
// restarts.
func keptOpen(t *testing.T, o Options) (*Server, *Proxy) {
	t.Helper()
	o.Args = append(o.Args, "--appendonly", "yes", "--appendfsync", "always")
	s, p := behind(t, o)
	p.KeepClientOpen(true)
	return s, p
}

func restart(t *testing.T, s *Server, p *Proxy) {
	t.Helper()
	s.Kill()
	settle(t, p, func(s Stats) bool { return s.Connected == 0 })
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestKeepClientOpenHidesARestart(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		for _, protocol := range []string{"2", "3"} {
			t.Run("protocol "+protocol, func(t *testing.T) {
				o.Password = "s3cret"
				s, p := keptOpen(t, o)
				c := dial(t, p.Addr())
				if _, err := c.Do("HELLO", protocol, "AUTH", "default", "s3cret"); err != nil {
					t.Fatal(err)
				}
				ask(t, c, "OK", "SELECT", "3")
				ask(t, c, "OK", "CLIENT", "SETNAME", "me")
				ask(t, c, "OK", "SET", "k", "v")
				ask(t, c, "OK", "SELECT", "4") // not of the handshake any more
				for i := range 3 {
					restart(t, s, p)
					// Logged in, in its first database, under its name.
					ask(t, c, "v", "GET", "k")
					ask(t, c, "me", "CLIENT", "GETNAME")
					if p.Stats().Accepted != 1 {
						t.Fatalf("after restart %d the client has connected anew", i+1)
					}
				}
				info, err := s.Info("server")
				if err != nil || info["process_id"] != fmt.Sprint(s.PID()) {
					t.Fatalf("INFO: %v, %v", info["process_id"], err)
				}
			})
		}
	})
}

func TestKeepClientOpenWaitsForTheServer(t *testing.T) {
	// Without a file, the server has nothing to load: no command meets LOADING.
	s, p := behind(t, Options{})
	p.KeepClientOpen(true)
	c := dial(t, p.Addr())
	ask(t, c, "PONG", "PING")
	s.Kill()
	settle(t, p, func(s Stats) bool { return s.Connected == 0 })
	// Sent to nobody: it waits in the proxy.
	send(t, c, "SET", "k", "v")
	if err := p.AwaitCommand(within(t), "SET", 1); err != nil {
		t.Fatal(err)
	}
	late := dial(t, p.Addr())
	send(t, late, "PING")
	silent(t, c)
	silent(t, late)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	receive(t, c, "OK")
	receive(t, late, "PONG")
	// The switch is one that can be turned back.
	p.KeepClientOpen(false)
	s.Kill()
	broken(t, c)
}

func TestKeepClientOpenAndTheLostReply(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		for _, answer := range []string{"", "ERR upstream failure"} {
			t.Run(fmt.Sprintf("answer=%q", answer), func(t *testing.T) {
				s, p := keptOpen(t, o)
				p.AnswerLost(answer)
				c := dial(t, p.Addr())
				ask(t, c, int64(1), "RPUSH", "list", "a")
				// The server takes it, and waits.
				send(t, c, "BLPOP", "none", "0")
				settle(t, p, forwarded("BLPOP", 1))
				err := await(within(t), s.exited(), func(context.Context) (bool, error) {
					info, err := s.Info("clients")
					return info["blocked_clients"] == "1", err
				})
				if err != nil {
					t.Fatal(err)
				}
				restart(t, s, p)
				if answer == "" {
					broken(t, c)
					return
				}
				v, err := c.Receive()
				if err != nil || v != ServerError(answer) {
					t.Fatalf("for the lost reply: %v, %v, want %q", v, err, answer)
				}
				ask(t, c, "a", "LPOP", "list")
			})
		}
	})
}

func TestKeepClientOpenEndsWithTheClient(t *testing.T) {
	s, p := keptOpen(t, Options{})
	c := dial(t, p.Addr())
	ask(t, c, "PONG", "PING")
	c.Close()
	settle(t, p, func(s Stats) bool { return s.Open == 0 })
	// The same while there is no server.
	c = dial(t, p.Addr())
	ask(t, c, "PONG", "PING")
	s.Kill()
	c.Close()
	settle(t, p, func(s Stats) bool { return s.Open == 0 })
}

// Whatever the protocol, the first server may come late, and meets nobody who has left meanwhile.
func TestKeepClientOpenWaitsForTheFirstServer(t *testing.T) {
	port, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ReleasePort(port) })
	target := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p := NewProxy(t, target)
	p.KeepClientOpen(true)
	say := func(text string) net.Conn {
		t.Helper()
		nc, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		if _, err := io.WriteString(nc, text); err != nil {
			t.Fatal(err)
		}
		return nc
	}
	left := say("\x00left")
	stays := say("\x00stays")
	settle(t, p, func(s Stats) bool { return s.Open == 2 })
	left.Close()
	settle(t, p, func(s Stats) bool { return s.Open == 1 })
	server, err := net.Listen("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	got := make([]byte, len("\x00stays"))
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "\x00stays" {
		t.Fatalf("the server got %q, %v", got, err)
	}
	nc.Close() // it is not repeated what such a client has sent
	if _, err := stays.Read(got); err == nil {
		t.Fatal("the client of a server that left was kept")
	}
}
