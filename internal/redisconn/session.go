package redisconn

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

// maxSessions bounds the connections for transactions. A WATCH belongs to a connection, so each
// connection serves one transaction at a time.
const maxSessions = 4

var (
	errBroken  = errors.New("the connection of the transaction broke")
	errClosed  = errors.New("the connection was closed")
	errBusy    = errors.New("all connections for transactions are busy")
	errChanged = errors.New("the key changed while it was looked at")
)

var _ driver.Comparer = (*Conn)(nil)

// sessions are connections that serve one transaction after the other. None is renewed: if a WATCH
// was lost with its connection, the rest of the transaction would run unwatched. None outlives the
// connection for commands beside which it was made.
type sessions struct {
	// places has an element for each session that is free: nil for one that is still to be made.
	// Whoever takes an element puts one back.
	places chan *Conn
	life   context.Context // ends in close
	end    context.CancelFunc
	closed *sync.Once

	uncut context.Context // ends in Cut
	cut   context.CancelFunc
}

func newSessions() sessions {
	s := sessions{places: make(chan *Conn, maxSessions), closed: new(sync.Once)}
	for range maxSessions {
		s.places <- nil
	}
	s.uncut, s.cut = context.WithCancel(context.Background())
	s.life, s.end = context.WithCancel(s.uncut)
	return s
}

// close ends the transactions under way and waits for them.
func (s *sessions) close() {
	s.end()
	s.closed.Do(func() {
		for range maxSessions {
			if c := <-s.places; c != nil {
				c.Close()
			}
		}
	})
}

// session takes a place. The error wraps driver.ErrNotSent.
func (c *Conn) session(ctx context.Context) (*Conn, error) {
	s := &c.sessions
	if s.life.Err() != nil {
		return nil, driver.NotSent(errClosed)
	}
	select {
	case free := <-s.places:
		if free != nil && free.beside == c.Connections() {
			return free, nil
		}
		if free != nil { // another server may have come in the place of the one behind it
			free.Cut()
			free.Close()
		}
	case <-ctx.Done():
		return nil, driver.NotSent(errBusy)
	}
	// Connecting does not depend on ctx: a connection that comes too late for this caller serves
	// the next.
	type outcome struct {
		session *Conn
		err     error
	}
	made := make(chan outcome)
	go func() {
		session, err := c.connectSession()
		select {
		case made <- outcome{session, err}:
		case <-ctx.Done():
			s.places <- session
		}
	}()
	select {
	case o := <-made:
		if o.err != nil {
			s.places <- nil
		}
		return o.session, o.err
	case <-ctx.Done():
		return nil, driver.NotSent(errors.New("still connecting"))
	}
}

func (c *Conn) connectSession() (*Conn, error) {
	beside := c.Connections()
	session, err := newConn(c.options, true)
	if err != nil {
		return nil, driver.NotSent(err)
	}
	session.beside = beside
	ctx, cancel := context.WithTimeout(c.sessions.life, c.options.ConnectTimeout)
	defer cancel()
	defer context.AfterFunc(c.sessions.life, session.Cut)() // what sets a connection up does not heed ctx
	_, err = session.Do(ctx, "PING")
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && refusal.Unable() {
		err = nil // the server answers
	}
	if err != nil {
		session.Close()
		return nil, driver.NotSent(err)
	}
	return session, nil
}

// IfEqual implements driver.Comparer.
func (c *Conn) IfEqual(ctx context.Context, key, value string, then ...string) (found, reply driver.Reply, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.sessions.life, cancel)()
	for broken := 0; ; {
		session, err := c.session(ctx)
		if err != nil {
			return found, reply, err
		}
		found, reply, err = session.ifEqual(ctx, key, value, then)
		if err != nil && !errors.Is(err, errChanged) {
			if errors.Is(err, driver.ErrNotSent) {
				session.Cut() // else wait a moment for what was sent: it should come before what follows
			}
			stop := context.AfterFunc(c.sessions.uncut, session.Cut)
			session.Close() // it may be watching, or in the middle of a transaction
			stop()
			session = nil
		}
		c.sessions.places <- session
		if ctx.Err() == nil && errors.Is(err, driver.ErrNotSent) && broken <= maxSessions {
			if session == nil {
				broken++ // the server may have ended idle connections
			}
			continue
		}
		return found, reply, err
	}
}

// ifEqual makes one try on a session. then is sent only in a transaction that has begun: a server that
// refuses MULTI would execute it at once.
func (c *Conn) ifEqual(ctx context.Context, key, value string, then []string) (found, reply driver.Reply, err error) {
	begun := c.client.DoMulti(ctx, c.command("WATCH", key), c.command("GET", key), c.command("MULTI"))
	for i, result := range begun {
		read, err := c.reply(result)
		if refusal, ok := errors.AsType[*driver.ServerError](err); ok {
			return found, reply, refusal
		}
		if err != nil {
			return found, reply, driver.NotSent(err)
		}
		if i == 1 {
			found = read
		}
	}
	if found.Kind != driver.Text || found.Text != value {
		if _, err := c.Do(ctx, "EXEC"); err != nil { // of nothing; it also ends the watch
			return found, reply, driver.NotSent(err)
		}
		return found, reply, nil
	}
	if err := c.ready(ctx); err != nil {
		return found, reply, err
	}
	results := c.client.DoMulti(ctx, c.command(then...), c.command("EXEC"))
	_, queued := c.reply(results[0])
	done, err := c.reply(results[1])
	refusal, refused := errors.AsType[*driver.ServerError](queued)
	switch {
	case err != nil && refused: // EXECABORT says less
		return found, reply, refusal
	case err != nil:
		return found, reply, err
	case done.Kind != driver.Array || len(done.Array) == 0:
		return found, reply, driver.NotSent(errChanged)
	}
	// The reply to then is the last one: the client looks after an idle connection with PING, which a
	// server queues like any other command after MULTI.
	return found, done.Array[len(done.Array)-1], nil
}

func (c *Conn) command(args ...string) rueidis.Completed {
	return c.client.B().Arbitrary(args...).Build()
}
