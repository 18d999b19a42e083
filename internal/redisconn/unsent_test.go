//go:build unix

package redisconn

import (
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// narrow relays connections to a server. It takes little in of what it does not read: the rest waits at the sender.
type narrow struct {
	listener net.Listener
	mu       sync.Mutex
	links    []*narrowLink
}

type narrowLink struct {
	client net.Conn
	pass   chan struct{} // what the client sends passes while this is closed
	over   chan struct{} // closed when the server has executed all that came
	mu     sync.Mutex    // guards pass
}

func newNarrow(t *testing.T, server *redistest.Server) *narrow {
	t.Helper()
	small := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		return err
	}}
	l, err := small.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &narrow{listener: l}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp4", server.Addr())
			if err != nil {
				client.Close()
				continue
			}
			k := &narrowLink{client: client, pass: make(chan struct{}), over: make(chan struct{})}
			close(k.pass)
			n.mu.Lock()
			n.links = append(n.links, k)
			n.mu.Unlock()
			serving.Go(func() { k.there(up.(*net.TCPConn)) })
			serving.Go(func() {
				io.Copy(client, up)
				io.Copy(io.Discard, up) // the client may have gone
				close(k.over)
				client.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		for _, k := range n.all() {
			k.hold(false)
			k.client.Close()
		}
		serving.Wait()
	})
	return n
}

func (n *narrow) all() []*narrowLink {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links
}

// there takes what the client sends to the server, and then ends that way.
func (k *narrowLink) there(up *net.TCPConn) {
	defer up.CloseWrite()
	for b := make([]byte, 4096); ; {
		n, err := k.client.Read(b)
		k.mu.Lock()
		pass := k.pass
		k.mu.Unlock()
		<-pass
		if n > 0 {
			if _, err := up.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold has nothing pass that the client sends, or lets it pass again.
func (k *narrowLink) hold(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.pass:
		if on {
			k.pass = make(chan struct{})
		}
	default:
		if !on {
			close(k.pass)
		}
	}
}

// What a connection that has broken could not send is not sent any more: it would be executed after what goes over
// the next connection, such as an acquire step after the release that undoes it.
func TestNothingIsSentAfterTheBreak(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256<<10)
	for name, of := range map[string]struct {
		connect func(t *testing.T, url string) (c driver.Conn, pipeline *Conn)
		stuck   int // the connection that is held
	}{
		"pipeline": {func(t *testing.T, url string) (driver.Conn, *Conn) { c := connect(t, url); return c, c }, 0},
		"direct":   {func(t *testing.T, url string) (driver.Conn, *Conn) { h := hasty(t, url); return h, h.Conn }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			relay := newNarrow(t, server)
			c, pipeline := of.connect(t, "redis://"+relay.listener.Addr().String())
			must(t, c, "PING")
			before := pipeline.Connections() // on a busy machine it may be given up for its silence
			stuck := relay.all()[of.stuck]
			stuck.hold(true)
			if _, err := c.Do(within(t, inTime), "SET", "k", "earlier"+long); err == nil {
				t.Fatal("what was held was answered")
			}
			if _, err := io.WriteString(relay.all()[0].client, "no reply\r\n"); err != nil && pipeline.Connections() == before {
				t.Fatal(err)
			}
			for end := time.Now().Add(patience); pipeline.Connections() == before; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the pipeline has not broken")
				}
			}
			for end := time.Now().Add(patience); ; {
				_, err := pipeline.Do(within(t, inTime), "SET", "k", "later")
				if err == nil {
					break
				}
				if time.Now().After(end) { // until then it may have met the end of the connection that broke
					t.Fatal(err)
				}
			}
			stuck.hold(false)
			<-stuck.over
			if got := must(t, pipeline, "GET", "k"); got.Text != "later" {
				t.Errorf("then the value is %.20q", got.Text)
			}
		})
	}
}
