// Package redisconn connects to a server with rueidis, set up for one ordered
// pipeline: one multiplexed connection, always pipelining, no retries and no
// connection lifetime. It is the only set-up in which a release cannot by itself
// overtake its own acquire, and the fastest for many. One who is alone is faster by a
// second connection, which has to be kept in order with the first.
package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

// Options says where and how to connect.
type Options struct {
	// Network is "tcp" or "unix"; Address as net.Dial takes it.
	Network, Address string
	// More are further addresses, of Sentinels or of a Cluster's nodes.
	More []string
	// Cluster: the addresses are those of some nodes of one.
	Cluster bool
	// Master is the name under which the Sentinels at Address and More know the
	// server; "" when Address is the server itself. The Sentinel credentials are
	// for these.
	Master                             string
	SentinelUsername, SentinelPassword string

	Username, Password string
	Database           int
	// TLS is nil for a plain connection.
	TLS *tls.Config
	// ConnectTimeout bounds the whole of a connection's set-up.
	ConnectTimeout time.Duration
}

func (o Options) addresses() []string { return append([]string{o.Address}, o.More...) }

// Place tells servers apart: Options with the same Place lead to the same.
func (o Options) Place() string {
	if o.Master == "" && !o.Cluster {
		return o.Network + " " + o.Address
	}
	return o.Master + " of " + strings.Join(slices.Sorted(slices.Values(o.addresses())), " ")
}

// A connection that answers nothing is given up after replyTimeout, though no
// caller waits that long: commands that wait in a stopped server's socket are
// executed, in order, if it goes on before then.
const (
	replyTimeout = 10 * time.Second
	probeEvery   = 5 * time.Second
	bufferSize   = 64 << 10
)

// RingSize is how many commands a connection can have under way before a
// further one blocks without looking at its ctx: the caller keeps below it.
const RingSize = 1 << ringScale

const ringScale = 11

// underWay counts the commands, of all connections, that somebody waits for.
var underWay atomic.Int64

// crowd is from how many of them on processors are scarce, so that fewer and
// longer writes gain more than early ones. Measured on two processors, over one
// node and five, with 1 to 64 callers.
var crowd = int64(6 * runtime.GOMAXPROCS(0))

// Conn is a driver.Conn over rueidis. It connects when a command needs it, and
// again after the connection broke.
type Conn struct {
	options  Options
	client   rueidis.Client
	sessions sessions
	// sentinels is nil where the address is the server's own.
	sentinels *sentinels
	following sync.WaitGroup

	life context.Context // ends in Close
	end  context.CancelFunc

	mu      sync.Mutex // guards present and the start of goroutines; nothing is called while it is held
	present []*watched
	// changes counts connections made and broken.
	changes atomic.Uint64
	// waiting counts the callers who wait for the pipeline, sent the commands given to
	// it. adrift is how many these were when a caller last left one there: until a later
	// one has been answered, it may be under way. 0 when none is.
	waiting      atomic.Int64
	sent, adrift atomic.Uint64
	// fast is nil while there is no express. owing is a former one that the server has
	// to close, or nil. same is nil where there is to be none; scripts counts those it
	// could have taken.
	fast    atomic.Pointer[express]
	owing   atomic.Pointer[express]
	same    atomic.Pointer[func(uint64, driver.Ask) bool]
	scripts atomic.Uint64
	// asked: the server wanted a client certificate and there is none. answered:
	// it answered a command all the same.
	asked, answered atomic.Bool
	// changed is told of keys that were watched.
	changed atomic.Pointer[func(key string)]
}

var _ driver.Batcher = (*Conn)(nil)

var errNotYet = errors.New("no command asked for a connection yet")

// New prepares a connection. Nothing is sent before the first command.
func New(o Options) (*Conn, error) { return newConn(o, false) }

// newConn is New; a connection that is made once is not renewed when it broke.
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
	ready := false // written before New returns, read by later dials only
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
		c.following.Go(func() { c.follow(o.ConnectTimeout) })
	}
	return c, nil
}

// client is rueidis set up for one ordered pipeline to each server.
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
		PipelineMultiplex:   -1,
		ForceSingleClient:   true,
		AlwaysPipelining:    true,
		DisableRetry:        true,
		DisableCache:        true,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
	}
}

// dial connects to the server, which is at address unless there are Sentinels to
// ask.
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
	conn, err := dial(ctx, o.Network, address, dialer, config)
	if err != nil {
		return nil, err
	}
	c.changes.Add(1)
	w := &watched{Conn: conn, address: address}
	w.broke = sync.OnceFunc(func() {
		c.changes.Add(1)
		c.mu.Lock()
		c.present = slices.DeleteFunc(c.present, func(other *watched) bool { return other == w })
		c.mu.Unlock()
		c.hangUp()
	})
	c.mu.Lock()
	c.present = append(c.present, w)
	c.mu.Unlock()
	return w, nil
}

func dial(ctx context.Context, network, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil {
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	}
	return dialer.DialContext(ctx, network, address)
}

// Do implements driver.Conn.
func (c *Conn) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if err := ctx.Err(); err != nil {
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
	return c.send(ctx, c.client.B().Arbitrary(args...).Build())
}

// EvalSHA implements driver.Conn.
func (c *Conn) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if err := ctx.Err(); err != nil {
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
	if x := c.alone(); x != nil {
		return c.sendAlone(ctx, x, c.evalSHA(sha, keys, args))
	}
	return c.send(ctx, c.evalSHA(sha, keys, args))
}

func (c *Conn) evalSHA(sha string, keys, args []string) rueidis.Completed {
	return c.client.B().Evalsha().Sha1(sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (c *Conn) send(ctx context.Context, cmd rueidis.Completed) (driver.Reply, error) {
	number := c.depart()
	var result rueidis.RedisResult
	if c.owing.Load() == nil {
		result = c.client.Do(ctx, cmd)
	} else {
		result = c.sendTogether(ctx, cmd)[0]
	}
	reply, err := c.reply(result)
	c.arrive(ctx, number, err)
	return reply, err
}

// sendTogether sends commands with no other's between them, and what has to be executed
// before them.
func (c *Conn) sendTogether(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	x := c.closing()
	if x == nil {
		return c.client.DoMulti(ctx, commands...)
	}
	results := c.client.DoMulti(ctx, append(rueidis.Commands{c.kill(x.id)}, commands...)...)
	if results[0].Error() == nil {
		c.owing.CompareAndSwap(x, nil)
	}
	return results[1:]
}

// depart counts in a command for the pipeline, or several that go together. It is
// followed by arrive.
func (c *Conn) depart() (number uint64) {
	underWay.Add(1)
	c.waiting.Add(1)
	return c.sent.Add(1)
}

// arrive takes in what became of the command. Replies come in order, and a number is given
// before the command is, so that the reply to a number that is larger than adrift comes
// after those to all that were adrift.
func (c *Conn) arrive(ctx context.Context, number uint64, err error) {
	_, refused := errors.AsType[*driver.ServerError](err)
	if answered := err == nil || refused; answered {
		if left := c.adrift.Load(); left > 0 && number > left {
			c.adrift.CompareAndSwap(left, 0)
		}
	} else if ctx.Err() != nil {
		for now := c.sent.Load(); ; {
			left := c.adrift.Load()
			if left >= now || c.adrift.CompareAndSwap(left, now) {
				break
			}
		}
	}
	c.waiting.Add(-1)
	underWay.Add(-1)
}

// Batch implements driver.Batcher.
func (c *Conn) Batch(ctx context.Context, commands ...[]string) ([]driver.Reply, []error) {
	replies, errs := make([]driver.Reply, len(commands)), make([]error, len(commands))
	if ctx.Err() != nil {
		for i := range errs {
			errs[i] = driver.NotSent(context.Cause(ctx))
		}
		return replies, errs
	}
	built := make(rueidis.Commands, len(commands))
	for i, args := range commands {
		built[i] = c.client.B().Arbitrary(args...).Build()
	}
	number := c.depart()
	for i, result := range c.sendTogether(ctx, built...) {
		replies[i], errs[i] = c.reply(result)
	}
	c.arrive(ctx, number, errs[len(errs)-1])
	return replies, errs
}

// Connections implements driver.Conn.
func (c *Conn) Connections() uint64 { return c.changes.Load() }

// watched tells at once when a connection breaks, though nobody uses it: the
// next command is then not sent before the next connection's server was looked
// at.
type watched struct {
	net.Conn
	address string
	broke   func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.broke()
	}
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	if underWay.Load() > crowd {
		// Others that are about to send do so first, and the next write carries all
		// of theirs: that costs both ends less than a write for each.
		runtime.Gosched()
	}
	n, err := w.Conn.Write(b)
	if err != nil {
		w.broke()
	}
	return n, err
}

func (w *watched) Close() error {
	w.broke()
	return w.Conn.Close()
}

// Close implements driver.Conn.
func (c *Conn) Close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.hangUp()
	c.sessions.close()
	c.client.Close()
	c.following.Wait()
	if x := c.fast.Load(); x != nil {
		c.drop(x)
	}
	if c.sentinels != nil {
		c.sentinels.close()
	}
}

func (c *Conn) reply(result rueidis.RedisResult) (driver.Reply, error) {
	reply, err := outcome(result)
	if err == nil {
		c.answered.Store(true)
		return reply, nil
	}
	if _, refused := errors.AsType[*driver.ServerError](err); refused {
		return reply, err
	}
	if c.asked.Load() && !c.answered.Load() && !errors.Is(err, context.Canceled) {
		// With TLS 1.3 our handshake is over before the server misses the
		// certificate, and all that is seen of its refusal is a reset.
		err = driver.NotSent(fmt.Errorf("%w: %w", errCertificateWanted, err))
	}
	return driver.Reply{}, err
}

// outcome puts a result into the driver's words.
func outcome(result rueidis.RedisResult) (driver.Reply, error) {
	message, err := result.ToMessage()
	if err == nil {
		return convert(message)
	}
	if rueidis.IsRedisNil(err) {
		return driver.Reply{}, nil
	}
	if _, ok := rueidis.IsRedisErr(err); ok {
		return driver.Reply{}, refusal(err)
	}
	return driver.Reply{}, err
}

// refusal keeps the text of a server's error, and every other error as it is.
func refusal(err error) error {
	if answer, ok := rueidis.IsRedisErr(err); ok {
		return &driver.ServerError{Text: answer.Error()}
	}
	return err
}

var errCertificateWanted = errors.New("the server asks for a client certificate, and Config.TLS has none")

func convert(message rueidis.RedisMessage) (driver.Reply, error) {
	switch {
	case message.IsNil():
		return driver.Reply{}, nil
	case message.IsMap():
		// CONFIG GET answers so in RESP3, and as a flat list in RESP2.
		fields, err := message.AsStrMap()
		if err != nil {
			return driver.Reply{}, err
		}
		flat := driver.Reply{Kind: driver.Array}
		for name, value := range fields {
			flat.Array = append(flat.Array, driver.Reply{Kind: driver.Text, Text: name}, driver.Reply{Kind: driver.Text, Text: value})
		}
		return flat, nil
	case message.IsInt64():
		n, err := message.AsInt64()
		return driver.Reply{Kind: driver.Int, Int: n}, err
	case message.IsArray():
		messages, err := message.ToArray()
		if err != nil {
			return driver.Reply{}, err
		}
		array := make([]driver.Reply, len(messages))
		for i, m := range messages {
			if array[i], err = convert(m); err != nil {
				return driver.Reply{}, err
			}
		}
		return driver.Reply{Kind: driver.Array, Array: array}, nil
	default:
		text, err := message.ToString()
		return driver.Reply{Kind: driver.Text, Text: text}, err
	}
}

// Unfit reports whether err says that the two ends will not get along until
// somebody mends a certificate, a name or a password, so that trying again is
// of no use.
func Unfit(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" {
		return true // a TLS alert
	}
	if errors.Is(err, errCertificateWanted) {
		return true
	}
	_, ok := errors.AsType[*driver.ServerError](err)
	return ok
}
