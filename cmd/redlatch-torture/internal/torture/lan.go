//go:build linux

package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// host is a simulated machine on the lan. One server runs on it, or the workers of a side.
type host int

// outside is the host of the torture itself and of the observers. No host is cut off from it.
const outside host = -1

// workersOf returns the host of the workers of a side. It comes after the hosts of the servers.
func workersOf(s side) host {
	if s == observers {
		return outside
	}
	return host(dataServers + sentinelCount + int(s))
}

// between returns all ways between the given hosts and all other hosts, in both directions.
func between(some ...host) []way {
	var ways []way
	for a := range workersOf(1) + 1 {
		for b := range workersOf(1) + 1 {
			if slices.Contains(some, a) != slices.Contains(some, b) {
				ways = append(ways, way{a, b})
			}
		}
	}
	return ways
}

// lan is a network between processes of this machine, on which hosts can be cut off from each other.
// All processes connect to a server at the address of its front. A front finds the process that
// connects, and so knows from which host a connection comes.
//
// No bytes are lost on a lan: what is held passes later, as with packets that TCP sends again.
type lan struct {
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex    // guards what follows; nothing waits while it is held
	held      map[way]int   // by how many faults
	changed   chan struct{} // closed and replaced when held changes
	residents map[int]host  // by process id
	dynamic   []resident
	listeners []net.Listener
	conns     map[net.Conn]bool
	ways      map[net.Conn]way // of the requests on connections of clients
	closed    bool
}

// way is the direction from one host to another.
type way struct{ from, to host }

// resident is a server on a host. Its process id changes when the server restarts.
type resident struct {
	pid func() int
	on  host
}

func newLAN() *lan {
	l := &lan{held: map[way]int{}, changed: make(chan struct{}), residents: map[int]host{os.Getpid(): outside}, conns: map[net.Conn]bool{}, ways: map[net.Conn]way{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// front opens an address for a server on a host. Connections to it wait until open is called with the
// address at which the server listens.
func (l *lan) front(on host) (address string, open func(target string), err error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	l.mu.Lock()
	l.listeners = append(l.listeners, listener)
	l.mu.Unlock()
	return listener.Addr().String(), func(target string) {
		l.wg.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return // closed
				}
				l.wg.Go(func() { l.serve(conn, on, target) })
			}
		})
	}, nil
}

// settle says that a process runs on a host.
func (l *lan) settle(pid int, on host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.residents[pid] = on
}

// settleServer says that a server runs on a host. pid returns its present process id.
func (l *lan) settleServer(pid func() int, on host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dynamic = append(l.dynamic, resident{pid, on})
}

// hold has all bytes that go one of the ways wait, if on is set. They pass again when hold was called
// as often without on.
func (l *lan) hold(ways []way, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range ways {
		if on {
			l.held[w]++
		} else if l.held[w]--; l.held[w] == 0 {
			delete(l.held, w)
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// cut ends the connections on which requests go one of the ways. Bytes of theirs that are held are lost.
func (l *lan) cut(ways []way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn, w := range l.ways {
		if slices.Contains(ways, w) {
			conn.Close()
		}
	}
}

// pass blocks while the way is held. It returns false if the lan is closed.
func (l *lan) pass(w way) bool {
	for {
		l.mu.Lock()
		held, changed := l.held[w] > 0, l.changed
		l.mu.Unlock()
		if l.ctx.Err() != nil {
			return false
		}
		if !held {
			return true
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		}
	}
}

// track adds a connection to those that close ends, if on is set, else it ends the connection and
// forgets it. It returns true if the connection was added.
func (l *lan) track(conn net.Conn, on bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on && !l.closed {
		l.conns[conn] = true
		return true
	}
	delete(l.conns, conn)
	conn.Close()
	return false
}

// serve passes bytes between a client and the server on a host until the connection ends.
func (l *lan) serve(client net.Conn, on host, target string) {
	if !l.track(client, true) {
		return
	}
	defer l.track(client, false)
	from, err := l.identify(client)
	if err != nil {
		return // the client has probably closed the connection already
	}
	server, err := l.dial(from, target)
	if err != nil {
		// The client must not learn that nobody listens there while the host is cut off from it.
		l.pass(way{on, from})
		return
	}
	if !l.track(server, true) {
		return
	}
	l.lead(client, way{from, on}, true)
	defer l.lead(client, way{from, on}, false)
	var pumping sync.WaitGroup
	pumping.Go(func() { l.pump(client, server, way{from, on}) })
	pumping.Go(func() { l.pump(server, client, way{on, from}) })
	pumping.Wait()
	l.track(server, false)
}

// dial connects to a server. For another server it waits a moment until that one listens: a follower of
// ZooKeeper may come before the new leader listens, and tries again when it is refused, but not when it is
// accepted and cut: that election would come to nothing.
func (l *lan) dial(from host, target string) (conn net.Conn, err error) {
	const patience = 2 * time.Second
	for deadline := time.Now().Add(patience); ; {
		var d net.Dialer
		conn, err = d.DialContext(l.ctx, "tcp4", target)
		if !errors.Is(err, syscall.ECONNREFUSED) || from < 0 || from >= dataServers || time.Now().After(deadline) || !wait(l.ctx, 5*time.Millisecond) {
			return conn, err
		}
	}
}

// lead notes which way the requests on a client's connection go, for cut, or forgets it.
func (l *lan) lead(client net.Conn, w way, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on {
		l.ways[client] = w
	} else {
		delete(l.ways, client)
	}
}

// pump passes bytes on until the connection ends. The end of the connection waits like the bytes.
func (l *lan) pump(from, to net.Conn, w way) {
	defer to.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass(w) {
			from.Close()
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// identify returns the host of the process at the other end of a connection. It looks again and again
// for a while: settle may not have been called yet for a process that has just started, and the
// kernel's list of sockets may lack one if it changes while it is read.
func (l *lan) identify(conn net.Conn) (host, error) {
	for missing, deadline := 0, time.Now().Add(5*time.Second); missing < 50 && time.Now().Before(deadline); {
		inode, err := peerInode(conn)
		if err != nil {
			missing++
		} else {
			for pid, on := range l.processes() {
				if hasSocket(pid, inode) {
					return on, nil
				}
			}
		}
		if !wait(l.ctx, 2*time.Millisecond) {
			break
		}
	}
	return outside, fmt.Errorf("the process behind %s is not known", conn.RemoteAddr())
}

// processes returns the host of each process id.
func (l *lan) processes() map[int]host {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[int]host, len(l.residents)+len(l.dynamic))
	maps.Copy(all, l.residents)
	for _, r := range l.dynamic {
		all[r.pid()] = r.on
	}
	return all
}

// peerInode returns the inode of the socket at the other end of a connection (proc(5)).
func peerInode(conn net.Conn) (string, error) {
	local, remote := conn.LocalAddr().(*net.TCPAddr).Port, conn.RemoteAddr().(*net.TCPAddr).Port
	// The list has to be that of this thread. Other threads, even the first one, may be in another
	// network namespace.
	file, err := os.Open("/proc/thread-self/net/tcp")
	if err != nil {
		return "", err
	}
	defer file.Close()
	near, far := fmt.Sprintf(":%04X", remote), fmt.Sprintf(":%04X", local)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) > 9 && strings.HasSuffix(f[1], near) && strings.HasSuffix(f[2], far) && f[9] != "0" {
			return f[9], nil
		}
	}
	return "", fmt.Errorf("no socket at %s", conn.RemoteAddr())
}

// hasSocket reports whether the process has the socket with this inode open.
func hasSocket(pid int, inode string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if target, err := os.Readlink(dir + "/" + entry.Name()); err == nil && target == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// close ends all connections and all fronts.
func (l *lan) close() {
	l.cancel()
	l.mu.Lock()
	l.closed = true
	for _, listener := range l.listeners {
		listener.Close()
	}
	for conn := range l.conns {
		conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
