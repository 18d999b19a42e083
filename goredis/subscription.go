package goredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/driver"
)

const (
	// lookEvery is how often a subscription is checked: whether its connection answers, and whether
	// it is still at the server that commands go to.
	lookEvery = 3 * time.Second
	// subscribeAgain is how long after the end of a subscription the next is made, so that one that
	// cannot last does not cost a connection for each step.
	subscribeAgain = 100 * time.Millisecond
)

// subscriber is a pipeliner whose server can send messages unasked.
type subscriber interface {
	pipeliner
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// listenConn is a connection whose client can subscribe. It does so by a connection besides those
// of the pool.
type listenConn struct {
	*batchConn
	client subscriber

	life context.Context // ends in Close
	end  context.CancelFunc

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// ended is when the last subscription ended by itself.
	ended  time.Time
	closed bool
	// listening counts the calls of Subscribe.
	listening sync.WaitGroup
}

var _ driver.Listener = (*listenConn)(nil)

func newListenConn(client subscriber) *listenConn {
	c := &listenConn{batchConn: newBatchConn(client), client: client}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

var (
	errClosed       = errors.New("the connection was closed")
	errEnded        = errors.New("a subscription has just ended")
	errMute         = errors.New("the connection of the subscription answers nothing")
	errElsewhere    = errors.New("the subscription is not at the server that commands go to")
	errResubscribed = errors.New("the subscription was made anew, and messages may have been missed")
)

// Close implements driver.Conn. It ends the subscriptions, too.
func (c *listenConn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.batchConn.Close()
	c.listening.Wait()
}

// Subscribe implements driver.Listener. If a subscription breaks, go-redis would make a new one by
// itself, and would not tell what was missed meanwhile: here the subscription ends.
func (c *listenConn) Subscribe(ctx context.Context, channel string, ready func(), heard func(message string)) error {
	if err := c.enter(); err != nil {
		return driver.NotSent(err)
	}
	defer c.listening.Done()
	listening, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(c.life, func() { cancel(errClosed) })()
	s := &subscription{conn: c, channel: channel, pubsub: c.client.Subscribe(listening)} // no channel yet
	var background sync.WaitGroup
	background.Go(func() { s.lookAfter(listening, cancel) })
	err := s.listen(listening, ready, heard)
	if listening.Err() != nil {
		err = context.Cause(listening)
	}
	cancel(nil)
	background.Wait()
	if ctx.Err() == nil {
		c.mu.Lock()
		c.ended = time.Now()
		c.mu.Unlock()
	}
	return err
}

// enter counts a call of Subscribe, unless none may begin now.
func (c *listenConn) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case time.Since(c.ended) < subscribeAgain:
		return errEnded
	}
	c.listening.Add(1)
	return nil
}

// EvalSHAWatching implements driver.Listener. It never watches: no server tells a pool of changed
// keys.
func (c *listenConn) EvalSHAWatching(ctx context.Context, sha string, keys, args []string) (reply driver.Reply, watched bool, err error) {
	reply, err = c.EvalSHA(ctx, sha, keys, args)
	return reply, false, err
}

// DoWatching implements driver.Listener.
func (c *listenConn) DoWatching(ctx context.Context, args ...string) (reply driver.Reply, watched bool, err error) {
	reply, err = c.Do(ctx, args...)
	return reply, false, err
}

// OnChange implements driver.Listener.
func (c *listenConn) OnChange(func(key string)) {}

// subscription is one SUBSCRIBE.
type subscription struct {
	conn     *listenConn
	channel  string
	pubsub   *redis.PubSub
	received atomic.Uint64
}

// listen subscribes and passes on what is received until the subscription ends. The error is a
// *driver.ServerError only if the server does not let the user listen.
func (s *subscription) listen(ctx context.Context, ready func(), heard func(message string)) error {
	if err := s.pubsub.Subscribe(ctx, s.channel); err != nil {
		return fmt.Errorf("to connect for a subscription: %v", err) // a reply here does not answer SUBSCRIBE
	}
	for stands := false; ; {
		received, err := s.pubsub.Receive(ctx)
		if err != nil {
			return refusal(err)
		}
		s.received.Add(1)
		switch m := received.(type) {
		case *redis.Subscription:
			if stands {
				return errResubscribed
			}
			if err := s.atCommands(ctx); err != nil {
				return refusal(err)
			}
			stands = true
			ready()
		case *redis.Message:
			heard(m.Payload)
		}
	}
}

// refusal returns err as a server's reply only if the server will reply the same next time.
func refusal(err error) error {
	if text, ok := replied(err); ok {
		err = &driver.ServerError{Text: text}
	}
	if e, ok := errors.AsType[*driver.ServerError](err); ok && !e.Unable() {
		return errors.New(e.Error())
	}
	return err
}

// lookAfter closes the subscription when ctx is done, and ends ctx when the subscription is of no
// use any more.
func (s *subscription) lookAfter(ctx context.Context, end context.CancelCauseFunc) {
	defer s.pubsub.Close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for asked, before := false, uint64(0); ; asked = true {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := s.received.Load()
		err := s.pubsub.Ping(ctx)
		if err == nil && asked && now == before {
			err = errMute
		}
		if err == nil {
			if err = s.atCommands(ctx); !errors.Is(err, errElsewhere) {
				err = nil // not known
			}
		}
		if err != nil {
			end(err)
			return
		}
		before = now
	}
}

// atCommands asks the server that commands go to whether it has the subscription: an address, or
// the Sentinels, may now lead to another server than when the subscription was made.
func (s *subscription) atCommands(ctx context.Context) error {
	reply, err := s.conn.Do(ctx, "PUBSUB", "NUMSUB", s.channel)
	if err == nil && (len(reply.Array) != 2 || reply.Array[1].Int < 1) {
		err = errElsewhere
	}
	return err
}
