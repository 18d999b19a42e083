package redlatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	randv2 "math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// Client holds locks on one set of nodes. It keeps a connection to each, and a
// second one to a single node and for Config.Replicas. It is safe for
// concurrent use; a program needs one.
type Client struct {
	config    Config
	clock     *clock.Alarms
	nodes     []member
	census    *node.Census
	observers observe.Observers
	engine    *quorum.Engine
	waitqueue *waitqueue.Queue
	// singly makes a call that waits for several names take them one by one at once.
	singly bool
	// renewals is nil if each lock is renewed by itself.
	renewals quorum.Renewer

	// draw returns a random duration below d, which is positive.
	draw func(d time.Duration) time.Duration
	// random returns random bytes.
	random   func() [16]byte
	counters counters
	// contacted is how many nodes have answered the first contact. patience is the time until which
	// a node that has not answered is waited for at all.
	contacted atomic.Int64
	patience  time.Time
	// attempts has an element for each attempt under way.
	attempts chan struct{}
	// tidying has an element for each lock that is being released though nobody has unlocked it.
	tidying chan struct{}
	// connecting: connectAgain is under way.
	connecting atomic.Bool

	// opened is the time from which the times of renewals are counted.
	opened time.Time

	// life ends when Close is called, with ErrClosed as its cause.
	life context.Context
	end  context.CancelCauseFunc

	mu     sync.Mutex // guards what follows; nothing is called while it is held
	closed bool
	held   map[*Lock]struct{}
	// watching: the client checks now and then whether the machine has slept since seen.
	watching bool
	seen     clock.Instant
	// calls counts the calls and renewals that Close waits for. It is added to under mu while the
	// client is not closed, or with a lock in held, which Close empties first.
	calls sync.WaitGroup
}

// member is a node that votes: a server, or a whole Cluster.
type member interface {
	quorum.Voter
	waitqueue.Node
	Connect(ctx context.Context) error
	// Choose is Acquire for one of several slots; the node says which one.
	Choose(ctx context.Context, r vote.Acquire) vote.Answer
	// Watch and Read say who has a key. Watch may also have the key's next change reported, as long
	// as until lasts.
	Watch(ctx, until context.Context, key string) (a vote.Answer, watched bool)
	Read(ctx context.Context, key string) vote.Answer
	// ReadAll is Read for many keys.
	ReadAll(ctx context.Context, keys []string, watch bool) ([]vote.Answer, vote.Answer)
	Vouch(ctx context.Context) error
	Reset(ctx context.Context) error
	// Reached reports whether the node has ever answered. A node that has not was sent nothing that
	// could have left something there. Cut ends the connection and what is under way there, so that
	// Close need not wait for it any more.
	Reached() bool
	// Stats counts the nodes that are InQuarantine or Unreachable.
	InQuarantine() bool
	Unreachable() bool
	Cut()
	Close()
}

// Open returns a client for the nodes of config. It connects to all of them at once, and returns
// when all have answered or refused. It returns earlier, a little after a quorum has answered or so
// many have refused that no quorum can, and in any case after a second, or ten times NodeTimeout if
// that is longer. A node that cannot be reached is no error, as it may come back.
//
// The error wraps ErrInvalid and names the setting to mend. Open finds two URLs that lead to one
// server, or to one Cluster, when that can be reached; otherwise the first lock that reaches it
// does.
func Open(config Config) (*Client, error) {
	c, err := open(config, hook.Surroundings{})
	if err != nil {
		return nil, fmt.Errorf("redlatch: %w", err)
	}
	return c, nil
}

// open is Open in the surroundings given.
func open(config Config, around hook.Surroundings) (*Client, error) {
	around = completeSurroundings(around)
	config.attached = around.Nodes
	if around.Batches {
		config.batchAbove = -1
	}
	config, endpoints, err := config.complete()
	if err != nil {
		return nil, err
	}
	dial := endpoint.dial
	if around.Dial != nil {
		dial = func(e endpoint) (driver.Conn, error) { return around.Dial(e.name) }
	}
	c := &Client{
		config:   config,
		clock:    clock.NewAlarms(around.Clock),
		draw:     around.Draw,
		random:   around.Random,
		census:   censusOf(endpoints),
		held:     make(map[*Lock]struct{}),
		attempts: make(chan struct{}, maxAttempts),
		tidying:  make(chan struct{}, maxReleases),
		singly:   around.Singly,
	}
	c.opened = c.clock.Mono()
	c.life, c.end = context.WithCancelCause(context.Background())
	waiter := string(c.appendSecret(nil)) + labelMark + url.QueryEscape(config.Label)
	c.waitqueue = waitqueue.New(waitqueue.Options{
		Waiter:  waiter,
		Timeout: config.NodeTimeout,
		Foreign: isForeign,
		Draw:    c.draw,
		Succeed: succeed,
		Life:    c.life,
	})
	voters, queueNodes := make([]quorum.Voter, len(endpoints)), make([]waitqueue.Node, len(endpoints))
	for i, e := range endpoints {
		n, err := c.newNode(i, e, waiter, dial)
		if err != nil {
			c.shut()
			return nil, err
		}
		c.nodes = append(c.nodes, n)
		voters[i], queueNodes[i] = n, n
	}
	c.waitqueue.Use(queueNodes)
	c.engine = quorum.New(voters, c.clock, config.stepTimeout())
	c.waitqueue.UseTransfers(quorum.NewTransfers(c.engine, config.MaxTTL))
	c.engine.OnWaiting(c.waitqueue.MarkContended)
	c.renewals = quorum.NewRenewals(c.life, c.engine, config.acknowledged())
	c.connect()
	if err := c.usable(); err != nil {
		c.shut()
		return nil, err
	}
	return c, nil
}

// completeSurroundings fills in the clock and the randomness of this process.
func completeSurroundings(s hook.Surroundings) hook.Surroundings {
	if s.Clock == nil {
		s.Clock = clock.System
	}
	if s.Draw == nil {
		s.Draw = randv2.N[time.Duration]
	}
	if s.Random == nil {
		s.Random = func() (b [16]byte) { rand.Read(b[:]); return b }
	}
	return s
}

// newNode returns the i-th node, at e.
func (c *Client) newNode(i int, e endpoint, waiter string, dial func(endpoint) (driver.Conn, error)) (member, error) {
	if e.store != nil {
		s := store{Store: e.store(c.changed)}
		if c.config.Observer != nil {
			s.reach = node.NewReach(c.config.observeReach(s.Name()))
		}
		return s, nil
	}
	conn, err := dial(e)
	if err != nil {
		return nil, invalid("Config.Nodes[%d]: %w", i, err)
	}
	o := c.config.nodeOptions(i, e, c.census)
	o.Waiter, o.Changed, o.Clock = waiter, c.changed, c.clock
	o.Woken = func(w vote.WakeUp) { c.waitqueue.Wake(i, w) }
	c.config.observeNode(&o)
	if c.config.acknowledged() {
		if o.Replicas, err = c.config.replicas(conn, e, dial); err != nil {
			conn.Close()
			return nil, invalid("Config.Nodes[%d]: %w", i, err)
		}
	}
	if e.cluster {
		return node.NewCluster(conn, o), nil
	}
	return node.Batch(node.New(conn, o), c.config.batchAbove), nil
}

// changed tells the callers that wait for key or observe it that it may have changed; "" stands for
// any key. It does not block.
func (c *Client) changed(key string) {
	c.waitqueue.Changed(key)
	c.observers.Changed(key)
}

// connect waits for the first contact with the nodes: for all of them while it is open whether a
// quorum can be reached, and then for the others a quarter as long again, one NodeTimeout at most.
func (c *Client) connect() {
	start := time.Now()
	answers := make(chan error, len(c.nodes))
	for _, n := range c.nodes {
		c.calls.Go(func() { // it goes on after Open has returned
			ctx, cancel := context.WithTimeout(c.life, connectTimeout(c.config.NodeTimeout))
			defer cancel()
			err := n.Connect(ctx)
			if err == nil {
				c.contacted.Add(1)
			}
			answers <- err
		})
	}
	reached, failed, need := 0, 0, quorum.Majority(len(c.nodes))
	var over <-chan time.Time
	for range c.nodes {
		select {
		case err := <-answers:
			if err == nil {
				reached++
			} else {
				failed++
			}
		case <-over:
			return
		}
		if over == nil && (reached == need || failed == len(c.nodes)-need+1) {
			took := time.Since(start)
			over = time.After(c.config.aLittle(took))
			c.patience = start.Add(took + 2*c.config.aLittle(took))
		}
	}
}

// usable returns an error if the nodes were found to be misnamed, or if the store is unfit.
func (c *Client) usable() error {
	if err := c.census.Err(); err != nil {
		c.connectAgain()
		return invalid("Config.%w", err)
	}
	if s, ok := c.store(); ok {
		return s.unfit()
	}
	return nil
}

// store returns the client's store, if it has one: the store is then its only member.
func (c *Client) store() (s store, ok bool) {
	if len(c.nodes) == 1 {
		s, ok = c.nodes[0].(store)
	}
	return s, ok
}

// connectAgain begins to look at the nodes whose servers are not known for certain: a name may have led
// to another node's server for a while only. Otherwise nobody would look, as nothing is sent for a
// call that is refused.
func (c *Client) connectAgain() {
	if !c.connecting.CompareAndSwap(false, true) || c.enter() != nil {
		return
	}
	go func() {
		defer c.calls.Done()
		defer c.connecting.Store(false)
		ctx, cancel := context.WithTimeout(c.life, connectTimeout(c.config.NodeTimeout))
		defer cancel()
		var all sync.WaitGroup
		for _, n := range c.nodes {
			all.Go(func() { _ = n.Connect(ctx) }) // what it finds is in the census
		}
		all.Wait()
	}()
}

// shut ends the calls that wait, waits for what is under way, and closes the connections.
func (c *Client) shut() {
	c.end(ErrClosed)
	c.calls.Wait()
	defer c.cutOff()()
	c.waitqueue.Close()
	if c.engine != nil {
		c.engine.Close()
	}
	var closing sync.WaitGroup
	for _, n := range c.nodes {
		closing.Go(n.Close)
	}
	closing.Wait()
}

// cutOff bounds how long Close waits for nodes that do not answer. Nodes that have never answered
// get half as long again as Open needed to hear a quorum, counted from Open; the others get one
// step's time. stop ends the bounds.
func (c *Client) cutOff() (stop func()) {
	never := time.AfterFunc(time.Until(c.patience), func() {
		for _, n := range c.nodes {
			if !n.Reached() {
				n.Cut()
			}
		}
	})
	late := time.AfterFunc(c.config.stepTimeout(), func() {
		for _, n := range c.nodes {
			n.Cut()
		}
	})
	return func() {
		never.Stop()
		late.Stop()
	}
}

// enter begins a call that Close waits for. Unless it fails, the caller must call c.calls.Done at
// the end.
func (c *Client) enter() error { return c.enterWith(nil) }

// enterWith is enter for a call that ends l. Close waits for such a call even if Close has
// begun, as long as it has not come to l.
func (c *Client) enterWith(l *Lock) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		if _, held := c.held[l]; !held {
			return ErrClosed
		}
	}
	c.calls.Add(1)
	return nil
}

// whileOpen returns a context that is done when ctx is, or when the client is closed. The caller must
// call stop.
func (c *Client) whileOpen(ctx context.Context) (either context.Context, stop func()) {
	either, cancel := context.WithCancelCause(ctx)
	life := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return either, func() { life(); cancel(nil) }
}

// untilClose calls do, unless the client is closed. Close ends the ctx of do, and waits for it. call is what
// the error of a closed client calls it.
func (c *Client) untilClose(ctx context.Context, call string, do func(context.Context) error) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	defer c.calls.Done()
	ctx, end := c.whileOpen(ctx)
	defer end()
	err := do(ctx)
	if err != nil && c.life.Err() != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w; %w", ErrClosed, err)
	}
	return err
}

// answers turns the nodes' votes into the answers that an error lists.
func (c *Client) answers(votes []vote.Answer) []NodeAnswer {
	answers := make([]NodeAnswer, len(c.nodes))
	for i, n := range c.nodes {
		answers[i] = NodeAnswer{Node: n.Name()}
		if i < len(votes) {
			v := votes[i]
			answers[i].Verdict, answers[i].Left, answers[i].Err = v.Verdict, v.Left, v.Err
			if v.Verdict == vote.Held {
				answers[i].Holder = parseHolder(v.Holder)
			}
		}
	}
	return answers
}

// logs reports whether the log takes a level.
func (c *Client) logs(level slog.Level) bool {
	return c.config.Logger.Enabled(context.Background(), level)
}

// jitter returns d ± 10 %, so that what started together does not go on together.
func (c *Client) jitter(d time.Duration) time.Duration {
	return d - d/10 + c.draw(d/5+1)
}

// Stats has a client's counts since Open. They are read one by one, so they may differ by what
// happened meanwhile.
type Stats struct {
	// Acquired counts the locks acquired, and Tries the attempts made for them, including those
	// that failed, also those of which nothing was sent because the client was overloaded or had too
	// many others under way. Several callers may hold in turn by one attempt.
	Acquired, Tries uint64
	// SecondRounds counts the tries whose fencing token had to be confirmed because no quorum of
	// the nodes agreed about it.
	SecondRounds uint64
	// Lost counts the locks that were lost while held.
	Lost uint64
	// Held is how many locks are held now, or are over and not yet deleted, as those that are kept
	// for WithMinHold.
	Held int
	// Contacted is how many nodes have answered the first contact, which Open begins.
	Contacted int
	// Quarantined is how many nodes this client knows not to vote yet, because it has asked for
	// their vote. Unreachable is how many nodes could not be connected to at the last try, or have
	// not answered a command for longer than NodeTimeout.
	Quarantined, Unreachable int
}

// counters are the counts of Stats that nothing else keeps.
type counters struct{ acquired, tries, lost atomic.Uint64 }

// Stats returns the client's counts. It does not block, and is safe for
// concurrent use.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	held := len(c.held)
	c.mu.Unlock()
	s := Stats{
		Acquired:     c.counters.acquired.Load(),
		Tries:        c.counters.tries.Load(),
		SecondRounds: c.engine.SecondRounds(),
		Lost:         c.counters.lost.Load(),
		Held:         held,
		Contacted:    int(c.contacted.Load()),
	}
	for _, n := range c.nodes {
		if n.InQuarantine() {
			s.Quarantined++
		}
		if n.Unreachable() {
			s.Unreachable++
		}
	}
	return s
}
