package faults

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// garbler relays connections to a server, and can end them all by bytes that are no TLS, as a proxy does that fails.
type garbler struct {
	mu      sync.Mutex // guards what follows
	mute    bool       // replies are lost
	clients []net.Conn
}

// relay passes a connection on, until either end closes it.
func (g *garbler) relay(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	g.mu.Lock()
	g.clients = append(g.clients, client)
	g.mu.Unlock()
	go func() {
		io.Copy(server, client)
		server.Close()
	}()
	for b := make([]byte, 4096); ; {
		n, err := server.Read(b)
		if err != nil {
			return
		}
		g.mu.Lock()
		if !g.mute {
			client.Write(b[:n])
		}
		g.mu.Unlock()
	}
}

func (g *garbler) silence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mute = true
}

func (g *garbler) garble() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mute = false
	for _, client := range g.clients {
		io.WriteString(client, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		client.Close()
	}
	g.clients = nil
}

// A connection with TLS breaks, by something that is no TLS, before the reply to an acquire step has come. That is no
// refusal: the step was executed, and nothing of it is left.
func TestGarbledTLSLeavesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{TLS: true})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var g garbler
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { g.relay(client, server.Addr()) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		g.garble()
		relays.Wait()
	})
	c := locktest.Config("rediss://" + listener.Addr().String())
	c.TLS = server.TLSConfig()
	client := locktest.Open(t, c)

	g.silence()
	failed := make(chan error, 1)
	go func() {
		_, err := client.TryLock(t.Context(), "tried")
		failed <- err
	}()
	locktest.Await(t, "the step is executed", func() bool { return locktest.Value(t, server, "tried") != "" })
	g.garble()
	if err := <-failed; err == nil {
		t.Fatal("it is held")
	}
	locktest.AwaitValue(t, server, "tried", "")
}
