package zookeeper_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// These are the protocol's numbers for a transaction, and for a user and its password.
const (
	opMulti = 14
	opAuth  = 100
)

// wire is a way to the servers on which a connection can break at the worst moment.
type wire struct {
	// loseMulti has the next transaction sent, and the connection closed before its answer is read.
	loseMulti atomic.Bool
	// failAuth has the connection break when the user is to be sent next.
	failAuth atomic.Bool
	// holdMulti, if any, is called before a transaction is sent.
	holdMulti atomic.Pointer[func()]
}

func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	return &wireConn{Conn: conn, wire: w}, err
}

type wireConn struct {
	net.Conn
	wire *wire
	lost atomic.Bool
}

func (c *wireConn) Write(p []byte) (int, error) {
	// A request is its length, its number and what it asks for.
	if len(p) > 12 && binary.BigEndian.Uint32(p[8:]) == opAuth && c.wire.failAuth.CompareAndSwap(true, false) {
		c.Conn.Close()
	}
	if len(p) > 12 && binary.BigEndian.Uint32(p[8:]) == opMulti {
		if c.wire.loseMulti.CompareAndSwap(true, false) {
			c.lost.Store(true)
		}
		if hold := c.wire.holdMulti.Load(); hold != nil {
			(*hold)()
		}
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lost.Load() {
		time.Sleep(10 * time.Millisecond)
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}
