package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

// Cluster is a driver.Conn over a Redis Cluster, with one ordered pipeline to each master. It
// follows MOVED and ASK, by which a server says that it did not execute a command. Slots that move
// would break the order of the pipelines, so it keeps the order of driver.Ordered.
type Cluster struct {
	*driver.Ordered
	notices
	options Options
	// redirections counts the replies that sent a command to another server.
	redirections atomic.Uint64
	// turn has room for one token. The goroutine that has put it there may make the client.
	turn   chan struct{}
	client atomic.Pointer[rueidis.Client]
	// failure is why the last try to make it failed, and failed is when. The token guards both.
	failure error
	failed  time.Time

	life context.Context // ends in Cut or Close
	end  context.CancelFunc

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// present are the connections that stand. over: no further one is to be made.
	present map[*watched]struct{}
	over    bool
	// tries counts the tries to make the client that have failed.
	tries int
}

var (
	_ driver.Batcher       = (*Cluster)(nil)
	_ driver.Cutter        = (*Cluster)(nil)
	_ driver.ShardListener = (*Cluster)(nil)
)

// NewCluster prepares connections to a Cluster, of which o names some nodes. It sends nothing
// before the first command.
func NewCluster(o Options) *Cluster {
	c := &Cluster{options: o, turn: make(chan struct{}, 1), present: make(map[*watched]struct{})}
	c.life, c.end = context.WithCancel(context.Background())
	c.Ordered = driver.NewOrdered(c.call)
	return c
}

// Close implements driver.Conn.
func (c *Cluster) Close() {
	c.end()
	end := func() {
		if client := c.client.Load(); client != nil {
			(*client).Close()
		}
	}
	end() // what is under way
	c.Ordered.Close()
	end() // what was made meanwhile
}

// Cut implements driver.Cutter.
func (c *Cluster) Cut() {
	c.end()
	c.breakAll(func() { c.over = true })
}

// breakAll makes a change after which no connection is to be made, and breaks those that stand.
func (c *Cluster) breakAll(change func()) {
	c.mu.Lock()
	change()
	present := slices.Collect(maps.Keys(c.present))
	c.mu.Unlock()
	for _, w := range present {
		w.Close()
	}
}

// dial connects to a server of the Cluster, for the client that is made in that try.
func (c *Cluster) dial(ctx context.Context, try int, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	conn, presented, err := dial(ctx, c.options.Network, address, dialer, config)
	if err != nil {
		return nil, driver.NotSent(err)
	}
	w := &watched{Conn: conn, address: address, presented: presented, checker: checker{redirections: &c.redirections, resp2: &c.mute}}
	w.broke = sync.OnceFunc(func() {
		if c.life.Err() == nil {
			dropUnsent(conn)
		}
		for _, other := range c.lost(w) {
			other.Close()
		}
	})
	c.mu.Lock()
	over := c.over || try != c.tries
	c.present[w] = struct{}{}
	c.mu.Unlock()
	if over {
		w.Close()
	}
	return w, nil
}

// lost is Conn.lost. Here the client may have further connections to a server, which stand on.
func (c *Cluster) lost(w *watched) (with []*watched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.present, w)
	for other := range c.present {
		if other.address == w.address && (w.hasMessages() || other.hasMessages()) {
			with = append(with, other)
		}
	}
	return with
}

// retryPause is how long after one try to make the client, or longer, the next is made. Until then
// callers learn at once why there is none.
const retryPause = 50 * time.Millisecond

// ready returns the client. It makes the client when first called, which needs a node of the
// Cluster that answers.
func (c *Cluster) ready(ctx context.Context) (rueidis.Client, error) {
	if client := c.client.Load(); client != nil {
		return *client, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if client := c.client.Load(); client != nil {
		return *client, nil
	}
	if c.failure != nil && time.Since(c.failed) < retryPause {
		return nil, c.failure
	}
	client, err := c.connect(ctx)
	if ctx.Err() == nil { // or it says nothing of the Cluster
		c.failure, c.failed = err, time.Now()
	}
	return client, err
}

// connect makes the client. Where that fails it leaves no connection: rueidis does not close one that is
// still being made when it gives up, as another server has refused it.
func (c *Cluster) connect(ctx context.Context) (client rueidis.Client, err error) {
	c.mu.Lock()
	try := c.tries
	c.mu.Unlock()
	defer func() {
		if err != nil {
			c.breakAll(func() { c.tries++ })
		}
	}()
	o := c.options
	option := o.client(func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		return c.dial(ctx, try, address, dialer, config)
	})
	option.OnInvalidations = c.invalidated
	option.InitAddress, option.ForceSingleClient = o.Addresses(), false
	client, err = rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	if client.Mode() != rueidis.ClientModeCluster {
		if err := alone(ctx, client); err != nil {
			client.Close()
			return nil, err
		}
	}
	c.client.Store(&client)
	return client, nil
}

var errNoSlots = errors.New("the server did not say which master has which slot when it was first asked")

// alone returns nil if the server is not part of a Cluster. For one address, rueidis makes a client of
// one server also after other errors with that word in them, such as that of a user who may not ask
// for the slots. Such a client would never find the other masters.
func alone(ctx context.Context, client rueidis.Client) error {
	for _, slots := range []string{"SLOTS", "SHARDS"} { // rueidis asks for either, by the server's version
		err := client.Do(ctx, client.B().Arbitrary("CLUSTER", slots).Build()).Error()
		if refusal, ok := rueidis.IsRedisErr(err); ok && strings.Contains(refusal.Error(), "cluster support disabled") {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errNoSlots
}

// usable is ready for a caller that has a command to send. After an error nothing was sent.
func (c *Cluster) usable(ctx context.Context) (rueidis.Client, error) {
	client, err := c.ready(ctx)
	if err == nil {
		err = ctx.Err() // closed meanwhile
	}
	if err != nil {
		return nil, c.unreached(err)
	}
	return client, nil
}

func (c *Cluster) call(ctx context.Context, args []string) (driver.Reply, error) {
	client, err := c.usable(ctx)
	if err != nil {
		return driver.Reply{}, err
	}
	// The pipeline ends a command that gets no answer; until then the command is not over.
	ctx = context.WithoutCancel(ctx)
	reply, err := redirected(outcome(client.Do(ctx, keyed(client, args))))
	if driver.FirstKey(args) != 0 {
		return reply, err
	}
	// A command without a key only asks, and any server will do. One was asked at random, which may
	// be dead.
	for _, one := range client.Nodes() {
		if _, refused := errors.AsType[*driver.ServerError](err); err == nil || refused {
			break
		}
		reply, err = outcome(one.Do(ctx, keyed(one, args)))
	}
	return reply, err
}

// unsubscribeTime bounds the wait for the end of a subscription. After that the server may go on
// sending to nobody until the connection breaks.
const unsubscribeTime = time.Second

var errSlotGone = errors.New("the server has the channel's slot no more")

// SubscribeShard implements driver.ShardListener. It uses the connection on which the commands for
// the slot go.
func (c *Cluster) SubscribeShard(ctx context.Context, channel string, ready func(), heard func(message string)) error {
	client, err := c.ready(ctx)
	if err != nil {
		return c.unreached(err)
	}
	listening := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "ssubscribe" {
			ready()
		}
	})
	// A listener that stops must say so on the same connection, or the server goes on counting it.
	listening = rueidis.WithOnReceiveReturnHook(listening, func(err error, one rueidis.CommandClient) error {
		if ctx.Err() != nil {
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTime)
			defer cancel()
			one.Do(leaving, one.B().Sunsubscribe().Channel(channel).Build())
		}
		return err
	})
	err = client.Receive(listening, client.B().Ssubscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { heard(m.Message) })
	if err == nil {
		return errSlotGone
	}
	return refusal(err)
}

// unreached returns why there is no client. A refusal keeps the server's own words.
func (c *Cluster) unreached(err error) error {
	if errors.Is(err, driver.ErrNotSent) {
		return err
	}
	if refusal, ok := errors.AsType[*rueidis.RedisError](err); ok {
		return driver.NotSent(&driver.ServerError{Text: refusal.Error()})
	}
	return driver.NotSent(err)
}

// Batch implements driver.Batcher. One of the commands has a key, which says where all of them go.
func (c *Cluster) Batch(ctx context.Context, commands ...[]string) ([]driver.Reply, []error) {
	replies, errs := make([]driver.Reply, len(commands)), make([]error, len(commands))
	client, err := c.ready(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = c.unreached(err)
		}
		return replies, errs
	}
	built := make(rueidis.Commands, len(commands))
	for i, args := range commands {
		built[i] = keyed(client, args)
	}
	err = client.Dedicated(func(one rueidis.DedicatedClient) error {
		for i, result := range one.DoMulti(ctx, built...) {
			replies[i], errs[i] = redirected(outcome(result))
		}
		return nil
	})
	if err != nil {
		errs[0] = errors.Join(errs[0], err)
	}
	return replies, errs
}

// keyed builds a command that says where its first key is.
func keyed(client rueidis.Client, args []string) rueidis.Completed {
	at := driver.FirstKey(args)
	if at == 0 {
		return client.B().Arbitrary(args...).Build()
	}
	return client.B().Arbitrary(args[:at]...).Keys(args[at]).Args(args[at+1:]...).Build()
}

var errNowhere = errors.New("the Cluster tells no address of a master of the hash slot: the slot has no master, " +
	"or that has no cluster-announce-hostname, which cluster-preferred-endpoint-type hostname needs")

// redirected turns a redirection that was not followed to its end into what it says: the command
// was not executed.
func redirected(reply driver.Reply, err error) (driver.Reply, error) {
	if errors.Is(err, rueidis.ErrNoSlot) {
		return reply, driver.NotSent(errNowhere)
	}
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && refusal.Redirects() {
		return reply, driver.NotSent(errors.New(err.Error()))
	}
	return reply, err
}
