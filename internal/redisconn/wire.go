package redisconn

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// wire is the network connection of a direct connection. The Redis client cannot close it: a reply
// may still be owed.
type wire struct {
	net.Conn
	// socket is the connection below TLS, or Conn itself.
	socket net.Conn
	raw    syscall.RawConn
	// answered: bytes came since the last write. It belongs to the caller that uses the direct
	// connection.
	answered bool
	peek     func(fd uintptr) bool
	quiet    bool // what peek found
	checker  checker
}

func newWire(conn net.Conn) (*wire, error) {
	socket := conn
	if secure, ok := conn.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	w := &wire{Conn: conn, socket: socket, raw: raw}
	w.peek = func(fd uintptr) bool {
		w.quiet = nothingToRead(fd)
		return true
	}
	return w, nil
}

// silent reports whether the server has sent nothing unasked, not even an end.
func (w *wire) silent() bool { return w.raw.Read(w.peek) == nil && w.quiet }

// Read implements net.Conn. Bytes that cannot be a reply break the connection and are not returned.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if whole, bad := w.checker.reading(b[:n]); bad != nil {
		w.end()
		n, err = whole, bad
	}
	w.answered = w.answered || n > 0
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	w.answered = false
	if err := w.checker.writing(b); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

// SetDeadline implements net.Conn. It does nothing: the client's deadline would replace the
// caller's, whose ctx ends the wait.
func (w *wire) SetDeadline(time.Time) error { return nil }

func (w *wire) Close() error { return nil }

// end closes the connection below TLS, without the closing alert, which could block, and without what
// is still to be sent: the server would execute that after what the next connection sends.
func (w *wire) end() {
	dropUnsent(w.socket)
	w.socket.Close()
}
