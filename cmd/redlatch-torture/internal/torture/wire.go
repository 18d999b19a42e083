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
// back, so that real packets can be lost. TCP sends them again, and connections recover.
// A proxy has no packets, and can only lose bytes for good.
//
// The namespace has no name. It belongs to one thread, and the kernel removes it and its link
// when that thread ends, however this process ends.
type wire struct {
	target   string
	host, ns string // addresses of the link's two ends
	device   string // the host's end
	listener net.Listener
	inside   chan func()   // functions for the namespace's thread, which ends when it is closed
	done     chan struct{} // closed when the namespace's thread ends

	once   sync.Once       // ends the namespace
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

const (
	inner = "in" // the namespace's end of the link
	// nowhere is a hardware address that neither end has. The other end drops frames to it, as they
	// are not addressed to it.
	nowhere = "02:00:00:00:00:01"
)

// wiresPossible returns nil if there can be wires on this machine, else the reason.
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

// newWire makes a namespace and a link to it, and relays connections to target. If it fails, it leaves
// nothing behind.
func newWire(ctx context.Context, target string) (w *wire, err error) {
	// Each wire has a network of its own, in the range that is reserved for tests
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

// house is the goroutine whose thread is in the namespace. It never unlocks the thread, so that the
// thread ends with the goroutine.
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

// within runs do on the namespace's thread. Sockets and processes that do makes are in the
// namespace.
func (w *wire) within(do func() error) error {
	result := make(chan error, 1)
	w.inside <- func() { result <- do() }
	return <-result
}

// ip runs the command ip with the arguments.
func ip(ctx context.Context, command string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, out)
	}
	return nil
}

func (w *wire) addr() string { return w.listener.Addr().String() }

// part has the link lose all packets of a direction until mend.
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

// mend has the link pass all packets again.
func (w *wire) mend(ctx context.Context) error {
	// The deletion of a neighbour fails if part did not set it.
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
		// Without this the kernel would remove the link only some time later.
		_ = ip(context.Background(), "link del "+w.device)
		close(w.inside)
		<-w.done
	})
	return nil
}
