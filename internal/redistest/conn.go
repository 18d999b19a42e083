package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"
)

// doLimit bounds one command, so that a frozen server fails a test instead of
// hanging it.
const doLimit = 30 * time.Second

// Conn is one plain connection to a server or proxy, for tests that look at
// what is there or need a connection's own state. One goroutine may send while
// another receives; otherwise it is not safe for concurrent use.
type Conn struct {
	nc net.Conn
	r  *bufio.Reader
}

// Dial connects to addr, a host:port or the path of a Unix socket. It blocks
// until connected or ctx is done, at most 30 s.
func Dial(ctx context.Context, addr string) (*Conn, error) { return dialTLS(ctx, addr, nil) }

func dialTLS(ctx context.Context, addr string, config *tls.Config) (*Conn, error) {
	d := net.Dialer{Timeout: doLimit}
	nc, err := d.DialContext(ctx, network(addr), addr)
	if err != nil {
		return nil, err
	}
	if config != nil {
		secure := tls.Client(nc, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, err
		}
		nc = secure
	}
	return &Conn{nc: nc, r: bufio.NewReader(nc)}, nil
}

// network tells a path from a host:port.
func network(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "unix"
	}
	return "tcp"
}

// Do sends one command and blocks for its reply, at most 30 s. What comes back
// is as [Conn.Receive] says; a reply that is an error is returned as the error.
func (c *Conn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	v, err := c.Receive()
	if err != nil {
		return nil, err
	}
	if e, ok := v.(ServerError); ok {
		return nil, e
	}
	return v, nil
}

// Send sends one command and does not wait for its reply.
func (c *Conn) Send(args ...string) error {
	if len(args) == 0 {
		return errors.New("no command given")
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(doLimit)); err != nil {
		return err
	}
	_, err := c.nc.Write(encode(args))
	return err
}

// Receive blocks for the next reply or push, at most 30 s: a string, an int64,
// nil, a []any (also for a map: key, value, key, value), a [Push] or a
// [ServerError]. The error is the connection's alone.
func (c *Conn) Receive() (any, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(doLimit)); err != nil {
		return nil, err
	}
	return readReply(c.r)
}

// Close closes the connection by a reset, once all replies that are wanted have
// been received: nothing lingers in the kernel, however many a test opens.
func (c *Conn) Close() error {
	if tcp, ok := c.nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c.nc.Close()
}

func encode(args []string) []byte {
	b := append([]byte{'*'}, strconv.Itoa(len(args))...)
	b = append(b, "\r\n"...)
	for _, a := range args {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(a)), 10)
		b = append(b, "\r\n"...)
		b = append(b, a...)
		b = append(b, "\r\n"...)
	}
	return b
}
