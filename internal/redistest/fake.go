package redistest

import (
	"net"
	"sync"
)

// Fake is a server that answers what it is told to, be it no reply at all.
type Fake struct {
	listener net.Listener
	answer   func(Command) string
	// banner is sent to each connection before it has said anything.
	banner string

	mu    sync.Mutex // guards conns and next
	conns map[net.Conn]bool
	next  int
	all   sync.WaitGroup
}

// Helloed is what a Fake may answer to HELLO 3.
const Helloed = "%2\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n"

// NewFake starts a server that sends banner on each connection, then for each command
// the bytes that answer returns, which is called for one connection's commands in order.
// It ends with the test.
func NewFake(t TB, banner string, answer func(Command) string) *Fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	f := &Fake{listener: listener, answer: answer, banner: banner, conns: make(map[net.Conn]bool)}
	f.all.Go(f.accept)
	t.Cleanup(f.close)
	return f
}

// Addr returns host:port.
func (f *Fake) Addr() string { return f.listener.Addr().String() }

// URL returns what a client connects to.
func (f *Fake) URL() string { return "redis://" + f.Addr() }

func (f *Fake) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.next++
		number := f.next
		f.conns[conn] = true
		f.mu.Unlock()
		f.all.Go(func() { f.serve(conn, number) })
	}
}

func (f *Fake) serve(conn net.Conn, number int) {
	defer func() {
		conn.Close()
		f.mu.Lock()
		delete(f.conns, conn)
		f.mu.Unlock()
	}()
	if _, err := conn.Write([]byte(f.banner)); err != nil {
		return
	}
	var split commandSplitter
	for buf, n := make([]byte, 64<<10), 0; ; {
		read, err := conn.Read(buf)
		if err != nil {
			return
		}
		split.feed(buf[:read])
		for {
			data, args, err := split.next()
			if err != nil {
				return
			}
			if data == nil {
				break
			}
			n++
			if _, err := conn.Write([]byte(f.answer(Command{Conn: number, N: n, Args: args}))); err != nil {
				return
			}
		}
	}
}

func (f *Fake) close() {
	f.listener.Close()
	f.mu.Lock()
	for conn := range f.conns {
		conn.Close()
	}
	f.mu.Unlock()
	f.all.Wait()
}
