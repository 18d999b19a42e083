//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/redlatch/redlatch/internal/redistest"
)

// wire leads the traffic to one server over a link into a network namespace and
// back, so that packets can be lost for real: connections stay, are retried by
// TCP and recover, as those of the proxy, which has no packets, do not.
//
// The namespace has no name: it is that of one thread, and gone with it, its link
// too, however this process ends.
type wire struct {
	target   string
	host, ns string // addresses of the two ends
	device   string // the host's end
	listener net.Listener
	inside   chan func() // run on the namespace's thread until closed
	done     chan struct{}

	once   sync.Once       // closes
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

const (
	inner = "in"
	// nowhere is a hardware address that nobody has: frames to it are dropped by
	// the other end, as not its own.
	nowhere = "02:00:00:00:00:01"
)

// wiresPossible returns why there can be no wires here, nil if there can.
func wiresPossible() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return errors.New("network namespaces need ip (remedy: apt-get install iproute2)")
	}
	w, err := newWire(context.Background(), "127.0.0.1:1")
	if err != nil {
		return err
	}
	return w.close()
}

func newWire(ctx context.Context, target string) (w *wire, err error) {
	// A network for each wire in the range that is kept for tests of networks
	// (RFC 2544, appendix C.2.2).
	net4 := rand.IntN(1 << 14)
	base := fmt.Sprintf("198.18.%d.", net4>>6)
	w = &wire{
		target: target, device: fmt.Sprintf("rl%08x", rand.Uint32()),
		host: base + strconv.Itoa(net4&63*4+1), ns: base + strconv.Itoa(net4&63*4+2),
		inside: make(chan func()), done: make(chan struct{}),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("a network namespace: %w", err), w.close())
			w = nil
		}
	}()
	thread := make(chan int)
	failed := make(chan error, 1)
	go w.house(thread, failed)
	tid := <-thread
	if err := <-failed; err != nil {
		return w, err
	}
	for _, command := range []string{
		"link add " + w.device + " type veth peer name " + inner + " netns " + strconv.Itoa(tid),
		"addr add " + w.host + "/30 dev " + w.device,
		"link set " + w.device + " up",
	} {
		if err := ip(ctx, command); err != nil {
			return w, err
		}
	}
	for _, command := range []string{"addr add " + w.ns + "/30 dev " + inner, "link set " + inner + " up"} {
		if err := w.within(func() error { return ip(ctx, command) }); err != nil {
			return w, err
		}
	}
	err = w.within(func() (err error) {
		w.listener, err = net.Listen("tcp4", net.JoinHostPort(w.ns, "0"))
		return err
	})
	if err != nil {
		return w, err
	}
	w.wg.Go(w.accept)
	return w, nil
}

// house is the goroutine whose thread is in the namespace. The thread ends with
// it, as it is never unlocked.
func (w *wire) house(thread chan<- int, failed chan<- error) {
	runtime.LockOSThread()
	defer close(w.done)
	err := unix.Unshare(unix.CLONE_NEWNET)
	thread <- unix.Gettid()
	failed <- err
	for do := range w.inside {
		do()
	}
}

// within runs do on the namespace's thread: sockets and processes that it makes
// are of the namespace.
func (w *wire) within(do func() error) error {
	result := make(chan error, 1)
	w.inside <- func() { result <- do() }
	return <-result
}

func ip(ctx context.Context, command string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, out)
	}
	return nil
}

func (w *wire) addr() string { return w.listener.Addr().String() }

// part has packets be lost until mend.
func (w *wire) part(ctx context.Context, way redistest.Direction) error {
	switch way {
	case redistest.Requests:
		return ip(ctx, "neigh replace "+w.ns+" lladdr "+nowhere+" dev "+w.device+" nud permanent")
	case redistest.Replies:
		return w.within(func() error {
			return ip(ctx, "neigh replace "+w.host+" lladdr "+nowhere+" dev "+inner+" nud permanent")
		})
	}
	return w.within(func() error { return ip(ctx, "link set "+inner+" down") })
}

func (w *wire) mend(ctx context.Context) error {
	// Neighbours that are not known need not be forgotten.
	_ = ip(ctx, "neigh del "+w.ns+" dev "+w.device)
	return w.within(func() error {
		_ = ip(ctx, "neigh del "+w.host+" dev "+inner)
		return ip(ctx, "link set "+inner+" up")
	})
}

func (w *wire) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.wg.Go(func() { w.relay(conn) })
	}
}

// relay passes bytes between a connection that came over the link and the server.
func (w *wire) relay(conn net.Conn) {
	defer conn.Close()
	var d net.Dialer
	server, err := d.DialContext(w.ctx, "tcp4", w.target)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(w.ctx, func() { conn.Close(); server.Close() })
	defer stop()
	w.wg.Go(func() {
		_, _ = io.Copy(server, conn)
		server.Close()
		conn.Close()
	})
	_, _ = io.Copy(conn, server)
}

// close ends the namespace. Closing twice does nothing.
func (w *wire) close() error {
	w.cancel()
	if w.listener != nil {
		w.listener.Close()
	}
	w.wg.Wait()
	w.once.Do(func() {
		// Else the link is gone only when the kernel comes to it.
		_ = ip(context.Background(), "link del "+w.device)
		close(w.inside)
		<-w.done
	})
	return nil
}
