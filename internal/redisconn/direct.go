package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

// Direct is a Conn with a second connection to the server, for a script that is alone. The
// goroutine that wants the script writes it and reads the reply itself. The pipeline passes both to
// goroutines of its own, which is most of the time that a step takes when there is nothing else to
// do.
//
// Order. A script goes by the direct connection while no caller waits for the pipeline, and while
// nothing is under way there that was abandoned. Where a script on the direct connection gets no
// answer, the next command that goes by the pipeline first has the server close the direct
// connection: then the script was executed before, or never will be. So what is sent after a call
// has returned is executed after it, whichever way each went.
type Direct struct {
	*Conn
	// fast is nil while there is no direct connection. last is the last one that got no answer.
	fast, last atomic.Pointer[direct]
	// scripts counts the scripts that a direct connection could have taken.
	scripts atomic.Uint64
	// tried is when the last direct connection was begun, nil once it stands.
	tried atomic.Pointer[time.Time]
}

// NewDirect returns c with a direct connection. It must be called before anything is sent. It
// returns c as it is where Sentinels choose the server, or where the platform cannot tell whether a
// connection has ended without reading from it.
func NewDirect(c *Conn) driver.Conn {
	if c.options.Master != "" || !canPeek {
		return c
	}
	d := &Direct{Conn: c}
	c.onBreak = d.hangUp
	return d
}

// direct is a direct connection.
type direct struct {
	client rueidis.Client
	wire   *wire
	// id is the server's id for the connection.
	id int64
	// generation is the value of Connections when it was made: as long as that is unchanged, the
	// pipeline leads to the same run of the server.
	generation uint64
	// busy: somebody uses it. A direct connection that has ended stays busy.
	busy atomic.Bool
	// abort ends the write and the wait for a reply.
	abort func()
}

// After each fewScripts scripts, a Direct without a direct connection tries to make one: a program
// that locks only now and then does without.
const fewScripts = 16

// directPause is how long after one try the next is made, if that one comes to nothing: the user may
// not be allowed what it takes.
const directPause = 10 * time.Second

// directBuffer is room for one script's keys and arguments, or for its reply.
const directBuffer = 4 << 10

var errOneWire = errors.New("the connection is not renewed")

// EvalSHA implements driver.Conn.
func (d *Direct) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if x := d.alone(); x != nil {
		return d.sendAlone(ctx, x, d.evalSHA(sha, keys, args))
	}
	return d.send(ctx, d.evalSHA(sha, keys, args))
}

// Close implements driver.Conn.
func (d *Direct) Close() {
	d.Conn.Close()
	if x := d.fast.Load(); x != nil {
		d.drop(x)
	}
}

// Commands implements driver.Commander.
func (d *Direct) Commands() [][]string {
	return [][]string{{"CLIENT", "ID"}, kill(nobody)}
}

// alone returns the direct connection if a script may go by it now, or nil. The caller may use it
// once.
func (d *Direct) alone() *direct {
	x := d.fast.Load()
	switch {
	case x == nil:
		if d.before.Load() == nil && d.scripts.Add(1)%fewScripts == 0 && d.mayTry() {
			d.inBackground(d.connect)
		}
		return nil
	case d.waiting.Load() > 0 || d.abandoned.Load() > 0 || d.before.Load() != nil || !x.busy.CompareAndSwap(false, true):
		return nil
	case x.generation != d.changes.Load() || !x.wire.silent():
		d.drop(x)
		return nil
	}
	return x
}

// mayTry reports whether the caller may try to make a direct connection.
func (d *Direct) mayTry() bool {
	last, now := d.tried.Load(), time.Now()
	return (last == nil || now.Sub(*last) >= directPause) && d.tried.CompareAndSwap(last, &now)
}

// sendAlone sends the script by x, which alone returned, and waits for its reply or for ctx.
func (d *Direct) sendAlone(ctx context.Context, x *direct, script rueidis.Completed) (driver.Reply, error) {
	if err := d.ready(ctx); err != nil {
		x.busy.Store(false)
		return driver.Reply{}, err
	}
	stop := afterFunc(ctx, x.abort)
	reply, err := d.reply(x.client.Do(context.Background(), script))
	hurried := !stop()
	replied := hasReply(err)
	if hurried && errors.Is(err, os.ErrDeadlineExceeded) {
		err = ctx.Err()
	}
	switch {
	case !replied && !x.wire.answered:
		d.leaveUnanswered(x)
	case !replied || hurried:
		d.drop(x)
	default:
		x.busy.Store(false)
	}
	return reply, err
}

// leaveUnanswered gives up x, whose script may still be on its way. The server will close x before
// it executes anything else, unless an answer comes first.
func (d *Direct) leaveUnanswered(x *direct) {
	first := &predecessor{generation: x.generation, command: kill(x.id)}
	d.before.Store(first)
	d.last.Store(x)
	d.fast.CompareAndSwap(x, nil)
	settle := func() {
		// The pipeline gives up a silent server after the same time.
		x.wire.Conn.SetReadDeadline(time.Now().Add(replyTimeout))
		if n, _ := x.wire.Read(make([]byte, 1)); n > 0 {
			d.before.CompareAndSwap(first, nil)
		}
		x.close()
	}
	if !d.inBackground(settle) {
		x.close()
	}
}

// kill returns the command that closes a connection.
func kill(id int64) []string { return []string{"CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)} }

// nobody is a connection id that no server has reached.
const nobody = 1 << 62

// connect makes a direct connection. It reports no failure: the pipeline will.
func (d *Direct) connect() {
	ctx, cancel := context.WithTimeout(d.life, d.options.ConnectTimeout)
	defer cancel()
	generation := d.changes.Load()
	dialer := net.Dialer{Timeout: d.options.ConnectTimeout, KeepAlive: probeEvery}
	conn, _, err := dial(ctx, d.options.Network, d.options.Address, &dialer, d.options.TLS)
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
	ready, used := false, false // used by one goroutine after the other
	option := d.options.client(func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
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
		_, err = d.send(ctx, d.command(kill(nobody)...)) // where this is forbidden there is no direct connection
	}
	if err != nil || !d.sameRun(ctx, ask) || conn.SetDeadline(time.Time{}) != nil || !d.fast.CompareAndSwap(nil, x) {
		x.close()
		return
	}
	d.tried.Store(nil)
}

// sameRun reports whether ask, which sends over a direct connection, reaches the same run of the
// server as the pipeline.
func (d *Direct) sameRun(ctx context.Context, ask func(args ...string) (driver.Reply, error)) bool {
	mine, err := ask("INFO", "server")
	theirs, failed := d.send(ctx, d.command("INFO", "server"))
	return err == nil && failed == nil && runID(mine.Text) != "" && runID(mine.Text) == runID(theirs.Text)
}

// runID returns the server's run id from a text of INFO, "" if it has none.
func runID(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}

// inBackground runs f on a goroutine that Close waits for. It reports false, and does nothing,
// after Close was called.
func (d *Direct) inBackground(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() != nil {
		return false
	}
	d.following.Go(f)
	return true
}

// drop closes a direct connection, which is then not used again.
func (d *Direct) drop(x *direct) {
	d.fast.CompareAndSwap(x, nil)
	x.close()
}

func (x *direct) close() {
	x.wire.end()
	x.client.Close()
}

// hangUp ends what the direct connection has under way.
func (d *Direct) hangUp() {
	for _, x := range []*direct{d.fast.Load(), d.last.Load()} {
		if x != nil {
			x.wire.end()
		}
	}
}

// afterFunc is context.AfterFunc, but without the contexts that it makes if ctx can do the same
// itself.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}
