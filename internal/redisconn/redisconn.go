// Package redisconn connects to a server with rueidis, set up for one ordered pipeline: one
// multiplexed connection, always pipelining, no retries and no connection lifetime. It is the only
// set-up in which a release cannot by itself overtake its own acquire, and the fastest for many
// callers. A caller that is alone is faster over a second connection, which has to be kept in order
// with the first.
package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

// Options says where and how to connect.
type Options struct {
	// Network is "tcp" or "unix". Address is as net.Dial takes it.
	Network, Address string
	// More are further addresses, of Sentinels or of a Cluster's nodes.
	More []string
	// Cluster: the addresses are those of some nodes of a Cluster.
	Cluster bool
	// Master is the name by which the Sentinels at Address and More know the server; "" when
	// Address is the server itself. The Sentinel credentials are for these Sentinels.
	Master                             string
	SentinelUsername, SentinelPassword string

	Username, Password string
	Database           int
	// TLS is nil for a plain connection.
	TLS *tls.Config
	// ConnectTimeout bounds the whole of a connection's set-up.
	ConnectTimeout time.Duration
}

// Addresses returns the addresses that the URL named.
func (o Options) Addresses() []string { return append([]string{o.Address}, o.More...) }

// Place returns a text that tells servers apart: Options with the same Place lead to the same
// server.
func (o Options) Place() string {
	if o.Master == "" && !o.Cluster {
		return o.Network + " " + o.Address
	}
	return o.Master + " of " + strings.Join(slices.Sorted(slices.Values(o.Addresses())), " ")
}

// A connection that answers nothing is given up after replyTimeout, though no caller waits that
// long: commands that wait in a stopped server's socket are executed, in order, if the server goes
// on before then.
const (
	replyTimeout = driver.LongestUnanswered
	probeEvery   = 5 * time.Second
	// refreshEvery is how often a Cluster is asked which master has which slot: a master that hangs
	// does not say that another has taken its place.
	refreshEvery = 5 * time.Second
	bufferSize   = 64 << 10
	// maxRedirections is how often a command is passed on between a Cluster's nodes, each of which
	// may say that another has the slot.
	maxRedirections = 16
)

// RingSize is how many commands a connection can have under way before a further one blocks without
// looking at its ctx. The caller must keep below it.
const RingSize = 1 << ringScale

const ringScale = 11

// underWay counts the commands, of all connections, that somebody waits for.
var underWay atomic.Int64

// scarceAbove is the number of commands under way above which processors are scarce, so that fewer
// and longer writes gain more than early ones. Measured on two processors, over one node and five,
// with 1 to 64 callers.
var scarceAbove = int64(6 * runtime.GOMAXPROCS(0))

// Conn is a driver.Conn over rueidis. It connects when a command needs a connection, also after the
// last one broke.
type Conn struct {
	notices
	options  Options
	client   rueidis.Client
	sessions sessions
	// sentinels is nil where the address is the server's own.
	sentinels *sentinels
	following sync.WaitGroup

	life context.Context // ends in Close
	end  context.CancelFunc

	mu      sync.Mutex // guards present, sought and the start of goroutines; nothing is called while it is held
	present []*watched
	sought  time.Time // when the address was last tried for a master

	// changes counts connections made and broken.
	changes atomic.Uint64
	// waiting counts the callers that wait for the pipeline, and sent the commands that were given
	// to it. abandoned is the value of sent when a caller last abandoned a command there: until a
	// later command has been answered, that one may be under way. It is 0 when none is.
	waiting         atomic.Int64
	sent, abandoned atomic.Uint64
	// before is nil if nothing must be executed before what is sent next.
	before atomic.Pointer[predecessor]
	// beside, of a session, is the number of the connection beside which it was made.
	beside uint64
	// onBreak, if set, is called when a connection has broken or is given up. It is set before the
	// first command.
	onBreak func()
	// asked: the server wanted a client certificate and there is none. answered: it answered all the
	// same.
	asked, answered atomic.Bool
}

var _ driver.Batcher = (*Conn)(nil)

var (
	errNotYet  = errors.New("no command asked for a connection yet")
	errNoTLS   = errors.New("it was connected and did not answer as a TLS server does: redis:// is for one without TLS")
	errNoRedis = errors.New("it was connected and did not answer as a Redis server does: rediss:// is for one with TLS")
	// A server with TLS ends a connection without it, and so does any server that goes down.
	errNoWord = errors.New("it was connected, and the connection ended before any answer: the server has gone down, or wants TLS (rediss://)")
)

// New prepares a connection. It sends nothing before the first command.
func New(o Options) (*Conn, error) { return newConn(o, false) }

// newConn is New. If once is set, the connection is not renewed after it broke.
func newConn(o Options, once bool) (*Conn, error) {
	c := &Conn{options: o, sessions: newSessions()}
	c.life, c.end = context.WithCancel(context.Background())
	if o.Master != "" {
		s, err := newSentinels(o)
		if err != nil {
			return nil, err
		}
		c.sentinels = s
	}
	if o.TLS != nil && len(o.TLS.Certificates) == 0 && o.TLS.GetClientCertificate == nil {
		o.TLS = o.TLS.Clone()
		o.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c.asked.Store(true)
			return new(tls.Certificate), nil
		}
	}
	ready := false // written before New returns, read only by later dials
	option := o.client(func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		if !ready {
			return nil, errNotYet
		}
		if once && c.changes.Load() > 0 {
			return nil, driver.NotSent(errBroken)
		}
		conn, err := c.dial(ctx, o, address, dialer, config)
		if err != nil {
			return nil, driver.NotSent(err)
		}
		return conn, nil
	})
	option.OnInvalidations = c.invalidated
	client, err := rueidis.NewClient(option)
	if client == nil {
		if c.sentinels != nil {
			c.sentinels.close()
		}
		return nil, err
	}
	c.client = client
	ready = true
	if c.sentinels != nil {
		c.following.Go(c.follow)
	}
	return c, nil
}

// client returns the options of rueidis for one ordered pipeline to each server.
func (o Options) client(dial func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:         []string{o.Address},
		Username:            o.Username,
		Password:            o.Password,
		SelectDB:            o.Database,
		TLSConfig:           o.TLS,
		Dialer:              net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: probeEvery},
		DialCtxFn:           dial,
		ConnWriteTimeout:    replyTimeout,
		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
		RingScaleEachConn:   ringScale,
		// rule: one-ordered-pipeline
		PipelineMultiplex: -1,
		ForceSingleClient: true,
		AlwaysPipelining:  true,
		// rule: at-most-once
		DisableRetry:  true,
		DisableCache:  true,
		ClientSetInfo: rueidis.DisableClientSetInfo,
		ClusterOption: rueidis.ClusterOption{MaxMovedRedirections: maxRedirections, ShardsRefreshInterval: refreshEvery},
	}
}

// dial connects to the server, which is at address unless there are Sentinels to ask.
func (c *Conn) dial(ctx context.Context, o Options, address string, dialer *net.Dialer, config *tls.Config) (*watched, error) {
	if c.sentinels != nil {
		ctx, cancel := context.WithTimeout(c.life, o.ConnectTimeout)
		defer cancel()
		found, err := c.sentinels.find(ctx)
		if err != nil {
			return nil, err
		}
		address = found
	}
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	conn, presented, err := dial(during, o.Network, address, dialer, config)
	if err != nil {
		return nil, err
	}
	c.changes.Add(1)
	w := &watched{Conn: conn, address: address, presented: presented, heard: func() { c.answered.Store(true) }, checker: checker{resp2: &c.mute}}
	w.broke = sync.OnceFunc(func() {
		c.changes.Add(1)
		if c.life.Err() == nil {
			dropUnsent(conn)
		}
		for _, other := range c.lost(w) {
			other.Close()
		}
		c.broke()
	})
	c.mu.Lock()
	over := c.life.Err() != nil
	c.present = append(c.present, w)
	c.mu.Unlock()
	if over {
		w.Close()
	}
	w.giveUpAfter(ctx)
	if c.sentinels != nil { // follow breaks what it finds in present; it may have looked before
		if err := c.sentinels.replaced(address); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// lost removes w, which has broken, and returns the connections that must not outlive it. Without
// RESP3 the client makes a second connection for messages. It neither closes that one when the first
// breaks nor replaces it, so both break together.
func (c *Conn) lost(w *watched) (with []*watched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.present, w)
	if at < 0 {
		return nil
	}
	c.present = slices.Delete(c.present, at, at+1)
	if w.hasMessages() {
		return slices.Clone(c.present)
	}
	return slices.Clone(c.present[at:])
}

// dial connects. presented: the server asked for a client certificate, and got one.
func dial(ctx context.Context, network, address string, dialer *net.Dialer, config *tls.Config) (conn net.Conn, presented bool, err error) {
	if config == nil {
		conn, err = dialer.DialContext(ctx, network, address)
		return conn, false, err
	}
	// Those who wait for the connection should learn why there is none before their time is over.
	ctx, cancel := context.WithTimeout(ctx, dialer.Timeout*9/10)
	defer cancel()
	conn, err = (&tls.Dialer{NetDialer: dialer, Config: presenting(config, &presented)}).DialContext(ctx, network, address)
	if err == context.DeadlineExceeded { // without TLS, or before it, the error is a *net.OpError
		err = errNoTLS
	}
	return conn, presented, err
}

// Connections implements driver.Conn.
func (c *Conn) Connections() uint64 { return c.changes.Load() }

// watched is a connection that tells at once when it breaks, even if nobody uses it: then the next
// command is sent only after the next connection's server was looked at.
type watched struct {
	net.Conn
	address string
	broke   func()
	// presented: the server asked for a client certificate, and got one.
	presented bool
	// heard, if set, is called when something was read for the first time. answered: it was. Before
	// that, only what sets up the connection was sent.
	heard    func()
	answered atomic.Bool
	checker  checker
}

// silentFor is how long a connection that is being set up is left alone after the ctx of that has ended. Who waits
// for it returns in that time, with the error of the ctx, unless rueidis keeps it.
const silentFor = 20 * time.Millisecond

// giveUpAfter ends a connection whose server has not answered at all when the ctx ends by which it is set up.
// Otherwise rueidis may wait for an answer for a second more, and so does the caller.
func (w *watched) giveUpAfter(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		time.AfterFunc(silentFor, func() {
			if !w.answered.Load() {
				w.Close()
			}
		})
	})
}

// hasMessages reports whether the connection is one for messages, without RESP3.
func (w *watched) hasMessages() bool { return w.checker.pending.messages.Load() }

// Read implements net.Conn. Bytes that cannot be a reply break the connection. What ends it before it has
// answered at all may be no Redis server.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	whole, bad := w.checker.reading(b[:n])
	if bad != nil {
		w.Close()
		n, err = whole, bad
	}
	if err != nil {
		_, secure := w.Conn.(*tls.Conn)
		switch first := !secure && n == 0 && !w.answered.Load(); {
		case first && bad != nil:
			err = fmt.Errorf("%w: %w", errNoRedis, err)
		case first && (err == io.EOF || errors.Is(err, syscall.ECONNRESET)):
			err = fmt.Errorf("%w: %w", errNoWord, err)
		}
		err = w.explained(err)
		w.broke()
	} else if !w.answered.Load() {
		w.answered.Store(true)
		if w.heard != nil {
			w.heard()
		}
	}
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	if underWay.Load() > scarceAbove {
		// Let others that are about to send do so first: the next write then carries all of theirs,
		// which costs both ends less than a write for each.
		runtime.Gosched()
	}
	n, err := 0, w.checker.writing(b)
	if err == nil {
		n, err = w.Conn.Write(b)
	}
	if err != nil {
		err = w.explained(err)
		w.broke()
	}
	return n, err
}

func (w *watched) Close() error {
	w.broke()
	return w.Conn.Close()
}

// dropUnsent has the system throw away, when conn is closed, what was written to it and has not
// arrived. Otherwise it goes on sending that, for minutes where packets are lost, and an acquire step
// may be executed after the release that undoes it, which went over the next connection. After Cut or
// Close there is no next one, and what was written last, such as a release, had better arrive. A child that
// this process is starting has copies of its connections until it executes its program: only then are they closed.
func dropUnsent(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails where it is closed already
	}
}

var _ driver.Cutter = (*Conn)(nil)

// Cut implements driver.Cutter.
func (c *Conn) Cut() {
	c.sessions.cut()
	c.breakOff(func(*watched) bool { return true })
}

// breakOff makes sure that no further connection is made, and breaks those for which which reports
// true.
func (c *Conn) breakOff(which func(*watched) bool) {
	c.mu.Lock()
	c.end()
	present := slices.Clone(c.present)
	c.mu.Unlock()
	for _, w := range present {
		if which(w) {
			w.Close()
		}
	}
	c.broke()
}

func (c *Conn) broke() {
	if c.onBreak != nil {
		c.onBreak()
	}
}

// Close implements driver.Conn. It does not wait for a connection that is still being made. It does
// wait for the answers to what was sent over one that has answered before.
func (c *Conn) Close() {
	c.breakOff(func(w *watched) bool { return !w.answered.Load() })
	c.sessions.close()
	c.client.Close()
	c.leave(func(string) bool { return true }) // one that is not set up yet is not the client's
	c.following.Wait()
	if c.sentinels != nil {
		c.sentinels.close()
	}
}
