package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

// direct is a second connection to the server, for a script that is alone. The
// goroutine that wants the script writes it and reads the reply, where the pipeline
// hands both over to goroutines of its own: most of the time that a step takes when
// there is nothing else to do.
//
// Order. A script goes by the direct connection while no caller waits for the pipeline, and the
// pipeline has nothing under way that its caller no longer waited for. Where a script on
// the direct connection gets no answer, what goes by the pipeline next has the server close the
// direct connection first: then the script was executed before, or never will be. So what is
// sent after a call has returned is executed after it, whichever way each went.
type direct struct {
	client rueidis.Client
	wire   *wire
	// id is the connection's, on the server.
	id int64
	// generation is the count of connections made and broken that it goes with: the
	// pipeline then led to the same run of the server, and still does.
	generation uint64
	// busy: somebody uses it. One that is at an end stays busy.
	busy atomic.Bool
	// abort ends the write and the wait for a reply.
	abort func()
}

// After so many scripts a Conn without a direct connection has one made: a program that
// locks now and then does without.
const fewScripts = 16

// directBuffer is room for one script's keys and arguments, or for its reply.
const directBuffer = 4 << 10

var errOneWire = errors.New("the connection is not renewed")

// AllowDirect implements driver.DirectConn. Where Sentinels choose the server, or the
// platform cannot tell whether a connection has ended without reading from it,
// there is no direct connection.
func (c *Conn) AllowDirect(same func(connection uint64, ask driver.Ask) bool) (possible bool) {
	if c.options.Master != "" || !canPeek {
		return false
	}
	c.same.Store(&same)
	return true
}

// alone returns the direct connection for a script that may go by it, or nil. Whoever gets it
// uses it once.
func (c *Conn) alone() *direct {
	x := c.fast.Load()
	switch {
	case x == nil:
		if c.same.Load() != nil && c.unanswered.Load() == nil && c.scripts.Add(1)%fewScripts == 0 {
			c.inBackground(c.connectDirectly)
		}
		return nil
	case c.waiting.Load() > 0 || c.abandoned.Load() > 0 || c.unanswered.Load() != nil || !x.busy.CompareAndSwap(false, true):
		return nil
	case x.generation != c.changes.Load() || !x.wire.silent():
		c.drop(x)
		return nil
	}
	return x
}

// sendAlone sends the script for which alone returned x, and waits for its reply or for
// ctx.
func (c *Conn) sendAlone(ctx context.Context, x *direct, script rueidis.Completed) (driver.Reply, error) {
	stop := afterFunc(ctx, x.abort)
	reply, err := c.reply(x.client.Do(context.Background(), script))
	hurried := !stop()
	replied := hasReply(err)
	if hurried && errors.Is(err, os.ErrDeadlineExceeded) {
		err = ctx.Err()
	}
	switch {
	case !replied && !x.wire.answered:
		c.leaveUnanswered(x)
	case !replied || hurried:
		c.drop(x)
	default:
		x.busy.Store(false)
	}
	return reply, err
}

// leaveUnanswered leaves x, whose script may still be on its way, to be closed by the server before
// it executes anything else, unless it answers first.
func (c *Conn) leaveUnanswered(x *direct) {
	c.unanswered.Store(x)
	c.fast.CompareAndSwap(x, nil)
	settle := func() {
		// The pipeline gives a silent server up after as long.
		x.wire.Conn.SetReadDeadline(time.Now().Add(replyTimeout))
		if n, _ := x.wire.Read(make([]byte, 1)); n > 0 {
			c.unanswered.CompareAndSwap(x, nil)
		}
		x.close()
	}
	if !c.inBackground(settle) {
		x.close()
	}
}

// closing returns the direct connection that the server is to close before a command that is
// now sent, or nil. The ids of another run of the server are others'.
func (c *Conn) closing() *direct {
	x := c.unanswered.Load()
	if x != nil && x.generation != c.changes.Load() {
		c.unanswered.CompareAndSwap(x, nil)
		return nil
	}
	return x
}

// kill is the command that closes a connection.
func (c *Conn) kill(id int64) rueidis.Completed {
	return c.command("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))
}

// nobody is a connection's id that no server has come to.
const nobody = 1 << 62

// connectDirectly connects once more. Nothing is said of a failure: the pipeline does.
func (c *Conn) connectDirectly() {
	ctx, cancel := context.WithTimeout(c.life, c.options.ConnectTimeout)
	defer cancel()
	generation := c.changes.Load()
	dialer := net.Dialer{KeepAlive: probeEvery}
	conn, err := dial(ctx, c.options.Network, c.options.Address, &dialer, c.options.TLS)
	if err != nil {
		return
	}
	w, err := newWire(conn)
	if err != nil {
		return
	}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	defer context.AfterFunc(ctx, w.end)()
	x := &direct{wire: w, generation: generation, abort: func() { conn.SetDeadline(time.Unix(1, 0)) }}
	ready, used := false, false // one goroutine after the other
	option := c.options.client(func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		if !ready || used {
			return nil, errOneWire
		}
		used = true
		return w, nil
	})
	option.AlwaysPipelining, option.DisableAutoPipelining, option.BlockingPoolSize = false, true, 1
	option.ReadBufferEachConn, option.WriteBufferEachConn = directBuffer, directBuffer
	if x.client, _ = rueidis.NewClient(option); x.client == nil {
		w.end()
		return
	}
	ready = true
	ask := func(args ...string) (driver.Reply, error) {
		return outcome(x.client.Do(context.Background(), x.client.B().Arbitrary(args...).Build()))
	}
	reply, err := ask("CLIENT", "ID")
	x.id = reply.Int
	if err == nil {
		_, err = c.send(ctx, c.kill(nobody)) // where that is forbidden there is no direct connection
	}
	if err != nil || !(*c.same.Load())(generation, ask) || conn.SetDeadline(time.Time{}) != nil || !c.fast.CompareAndSwap(nil, x) {
		x.close()
	}
}

// inBackground runs f on a goroutine that Close waits for, and reports false when
// it has been called.
func (c *Conn) inBackground(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.following.Go(f)
	return true
}

// drop closes a direct connection that is not to be used again.
func (c *Conn) drop(x *direct) {
	c.fast.CompareAndSwap(x, nil)
	x.close()
}

func (x *direct) close() {
	x.wire.end()
	x.client.Close()
}

// hangUp ends what the direct connection has under way.
func (c *Conn) hangUp() {
	for _, x := range []*direct{c.fast.Load(), c.unanswered.Load()} {
		if x != nil {
			x.wire.end()
		}
	}
}

// afterFunc is context.AfterFunc, without its contexts where ctx is one that can do
// that itself.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}
