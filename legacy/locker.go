package legacy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redisconn"
)

// Config says where the old locks are, and what they look like.
type Config struct {
	// URL is that of the one server, in the form of redlatch.Config.Nodes.
	URL string
	// Timeout is how long a lock lasts, in whole seconds, the grain of the protocol. All lockers
	// must use the same.
	Timeout time.Duration
	// KeyTemplate makes the key from the lock's name, which replaces {name}. Defaults to
	// "lock.{name}", as in the Redis documentation.
	KeyTemplate string
	// TLS is for a rediss:// URL, and refused with another. Defaults to the system's roots and the
	// URL's host name.
	TLS *tls.Config
}

const (
	nameMark        = "{name}"
	defaultTemplate = "lock." + nameMark
	// commandTimeout bounds one command, connecting included. A DEL that came after the lock's end
	// would delete another's key, so it is short beside the protocol's margin, which is a second where
	// others count in whole seconds.
	commandTimeout = 500 * time.Millisecond
	connectTimeout = time.Second
	// maxInFlight keeps the commands under way, and a PING behind each, below the size of the
	// connection's own queue, which would block without looking at ctx.
	maxInFlight = redisconn.RingSize / 4
)

// What a Locker that is opened begins with; on a busy machine, tests have more.
var commandPatience, connectPatience = commandTimeout, connectTimeout

// Locker takes old locks on one server. It is safe for concurrent use.
type Locker struct {
	config   Config
	patience time.Duration // with one command
	conn     driver.Conn
	closed   atomic.Bool
	inFlight chan struct{}
	drain    sync.Once
}

// Open returns a Locker. It sends nothing yet. The error wraps redlatch.ErrInvalid and names the
// setting to mend.
func Open(config Config) (*Locker, error) {
	if config.KeyTemplate == "" {
		config.KeyTemplate = defaultTemplate
	}
	switch {
	case config.Timeout < time.Second || config.Timeout%time.Second != 0:
		return nil, invalid("Config.Timeout is %v: it must be whole seconds, at least 1s, and that of all other lockers", config.Timeout)
	case strings.Count(config.KeyTemplate, nameMark) != 1:
		return nil, invalid("Config.KeyTemplate is %q: it must contain %s once", config.KeyTemplate, nameMark)
	}
	if config.URL == "" {
		return nil, invalid("Config.URL is empty: give that of the server with the old locks, such as redis://HOST:PORT")
	}
	options, _, err := redisconn.Parse(config.URL)
	if err != nil {
		return nil, invalid("Config.URL: %w", err)
	}
	if options.Cluster {
		return nil, invalid("Config.URL is that of a Cluster: an old lock is on one server; name that one alone, without cluster")
	}
	if err := options.Secure(config.TLS); err != nil {
		return nil, invalid("Config.URL: %w", err)
	}
	options.ConnectTimeout = connectPatience
	conn, err := redisconn.New(options)
	if err != nil {
		return nil, invalid("Config.URL: %w", err)
	}
	return &Locker{config: config, patience: commandPatience, conn: conn, inFlight: make(chan struct{}, maxInFlight)}, nil
}

// Close closes the connection, and waits for the answers to what was sent. Locks that are still held
// stay until they expire. All that needs the server fails from now on, with redlatch.ErrClosed.
func (l *Locker) Close() {
	l.closed.Store(true)
	l.conn.Close()
	l.drain.Do(func() {
		for range cap(l.inFlight) {
			l.inFlight <- struct{}{}
		}
		for range cap(l.inFlight) { // who comes now learns that it is closed
			<-l.inFlight
		}
	})
}

// Lock acquires the lock name, and waits until it holds it or ctx is done. It asks again some ten
// times a second, as the protocol has nothing better.
//
// Errors are those of TryLock, except that ErrHeld is waited out. When ctx is done first, errors.Is
// finds its cause and what stood in the way.
func (l *Locker) Lock(ctx context.Context, name string) (*Lock, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	return l.lock(ctx, context.WithoutCancel(ctx), name)
}

// lock is Lock; parent is the parent of the lock's own context.
func (l *Locker) lock(ctx, parent context.Context, name string) (*Lock, error) {
	var way error // what stood in the way before
	for {
		lock, err := l.try(ctx, parent, name)
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(err, redlatch.ErrHeld):
			way = err
		case ctx.Err() != nil && way != nil:
			return nil, fmt.Errorf("%w; %w", err, way)
		default:
			return nil, err
		}
		select {
		case <-time.After(50*time.Millisecond + rand.N(100*time.Millisecond)):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; %w", context.Cause(ctx), err)
		}
	}
}

// TryLock makes one try for the lock name: one command if it is free, three if it has expired. It
// waits for the server or for ctx.
//
// Errors: redlatch.ErrHeld when another holds it, or when the key has a value that is no time;
// redlatch.ErrRefused with the server's words; redlatch.ErrInvalid; redlatch.ErrNoQuorum when the
// server was not reached, did not answer, or said that it cannot do this now, as one that is out of
// memory; redlatch.ErrClosed after Close; redlatch.ErrLost when this process was stopped for so long
// that the lock ran out. After ErrNoQuorum, and where Close came meanwhile, the lock may have been set
// for nobody. It then expires by its timeout, and cannot be removed earlier, because it may be another's.
func (l *Locker) TryLock(ctx context.Context, name string) (*Lock, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	return l.try(ctx, context.WithoutCancel(ctx), name)
}

func (l *Locker) try(ctx, parent context.Context, name string) (*Lock, error) {
	if name == "" {
		return nil, invalid("the lock's name is empty")
	}
	key := strings.Replace(l.config.KeyTemplate, nameMark, name, 1)
	for {
		v := l.validity()
		reply, err := l.do(ctx, v.until, "SETNX", key, v.text())
		if err != nil {
			return nil, failed("lock", name, err)
		}
		if reply.Int == 1 {
			return newLock(parent, l, name, key, v)
		}
		reply, err = l.do(ctx, v.until, "GET", key)
		switch {
		case err != nil:
			return nil, failed("lock", name, err)
		case reply.Kind == driver.Null:
			continue // it was released since
		case !expired(reply.Text):
			return nil, held(name, reply.Text)
		}
		// Others see that it has expired, too. All of them write, and the one that finds the
		// expired value still there has the lock.
		v = l.validity()
		reply, err = l.do(ctx, v.until, "GETSET", key, v.text())
		switch {
		case err != nil:
			return nil, failed("lock", name, err)
		case reply.Kind != driver.Null && !expired(reply.Text):
			return nil, held(name, reply.Text)
		}
		return newLock(parent, l, name, key, v)
	}
}

// do sends a command, for which until must not have come: what is written then is another's. If no
// reply comes, the command's outcome is not known.
func (l *Locker) do(ctx context.Context, until clock.Instant, args ...string) (driver.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, min(l.patience, clock.System.Now().Until(until)), errNoAnswer)
	defer cancel()
	if ctx.Err() != nil {
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
	select {
	case l.inFlight <- struct{}{}:
	case <-ctx.Done():
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
	queued := false // in the connection's queue, until the server has answered
	defer func() {
		if !queued {
			<-l.inFlight
		}
	}()
	if l.closed.Load() {
		return driver.Reply{}, redlatch.ErrClosed
	}
	reply, err := l.conn.Do(ctx, args...)
	switch _, refused := errors.AsType[*driver.ServerError](err); {
	case err == nil || refused:
	case l.closed.Load(): // that is why the connection ended
		err = fmt.Errorf("%w: %w", redlatch.ErrClosed, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded):
		// Connections is odd while one stands. Without it a PING would make the next, and others wait for that.
		if queued = !errors.Is(err, driver.ErrNotSent) && l.conn.Connections()%2 == 1; queued {
			go func() {
				l.conn.Do(context.Background(), "PING") // the answer to which comes after it
				<-l.inFlight
			}()
		}
		if end, _ := ctx.Deadline(); !time.Now().Before(end) {
			<-ctx.Done() // whose timer is a little late
		}
		// Otherwise it may be the ctx of another caller, which was connecting for both.
		if err = context.Cause(ctx); err == nil {
			err = errNoAnswer
		}
	}
	return reply, err
}

var errNilContext = invalid("ctx is nil: pass context.Background() or the request's context")

var errNoAnswer = errors.New("the server did not answer in time")

func invalid(format string, args ...any) error {
	return fmt.Errorf("legacy: %w: %w", redlatch.ErrInvalid, fmt.Errorf(format, args...))
}

// failed wraps the error of a command in the redlatch error that it amounts to.
func failed(op, name string, err error) error {
	if errors.Is(err, redlatch.ErrClosed) {
		return fmt.Errorf("legacy: %s %q: %w", op, name, err)
	}
	kind := redlatch.ErrNoQuorum
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && !refusal.Passing() {
		kind = redlatch.ErrRefused
	}
	return fmt.Errorf("legacy: %s %q: %w: %w", op, name, kind, err)
}
