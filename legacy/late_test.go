package legacy

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
)

// Whoever looks at the context of a lock that has run out finds it over, though the timer is late,
// and so does whoever looks at a Pair's whose new lock has run out.
func TestContextOfALockThatRanOut(t *testing.T) {
	t.Parallel()
	for way, look := range map[string]func(context.Context) error{
		"Err":   context.Context.Err,
		"Cause": context.Cause,
		"Done": func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return errors.New("done")
			default:
				return nil
			}
		},
		"child": func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err()
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			locker := &Locker{config: Config{Timeout: time.Minute}}
			lock, err := newLock(t.Context(), locker, "a", "lock.a", locker.validity())
			if err != nil {
				t.Fatal(err)
			}
			if err := look(lock.Context()); err != nil {
				t.Fatal(err)
			}
			lock.mu.Lock()
			lock.until = lock.until.Add(-time.Hour)
			lock.mu.Unlock()
			if look(lock.Context()) == nil {
				t.Error("the first look at the context says that the lock is held")
			}
			if err := context.Cause(lock.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("the cause is %v", err)
			}
		})
		t.Run(way+" where another has found it lost", func(t *testing.T) {
			t.Parallel()
			locker := &Locker{config: Config{Timeout: time.Minute}}
			lock, err := newLock(t.Context(), locker, "a", "lock.a", locker.validity())
			if err != nil {
				t.Fatal(err)
			}
			lock.mu.Lock()
			lock.state = lock.lost("it ran out") // and stands still before it ends the context
			lock.mu.Unlock()
			if look(lock.Context()) == nil {
				t.Error("the first look at the context says that the lock is held")
			}
		})
		t.Run(way+" of a pair", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			locker := &Locker{config: Config{Timeout: time.Minute}}
			lock, err := newLock(unlooked{ctx, cancel}, locker, "a", "lock.a", locker.validity())
			if err != nil {
				t.Fatal(err)
			}
			if look(lock.Context()) == nil {
				t.Error("the first look at the context says that both are held")
			}
		})
	}
}

// A timer sleeps with the machine: who waits for the end of the context is told soon after that all the same, and so
// where the wall clock was stepped past the lock's end.
func TestContextAfterSleep(t *testing.T) {
	t.Parallel()
	for what, pass := range map[string]func(*Lock){
		"sleep": func(k *Lock) { k.until.Boot -= time.Hour },
		"step":  func(k *Lock) { k.value -= int64(time.Hour / time.Second) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locker := &Locker{config: Config{Timeout: time.Hour}}
			lock, err := newLock(t.Context(), locker, "a", "lock.a", locker.validity())
			if err != nil {
				t.Fatal(err)
			}
			done := lock.Context().Done()
			lock.mu.Lock()
			pass(lock)
			lock.mu.Unlock()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Error("after 20 s nobody has found the lock lost")
			}
		})
	}
}

// unlooked is the context of a lock of redlatch that has run out, and ends when it is looked at.
type unlooked struct {
	context.Context
	end context.CancelFunc
}

func (u unlooked) Err() error {
	u.end()
	return u.Context.Err()
}

// slowConn is a connection that takes some time to be made: what it is asked to send for a caller who still
// waits then is sent then.
type slowConn struct {
	driver.Conn
	takes time.Duration
	sent  int
}

func (c *slowConn) Do(ctx context.Context, _ ...string) (driver.Reply, error) {
	select {
	case <-time.After(c.takes):
		c.sent++
		return driver.Reply{Kind: driver.Int, Int: 1}, nil
	case <-ctx.Done():
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
}

// What releases or extends a lock is not sent when the lock has run out: it might be another's by then.
func TestNothingIsSentForALockThatRanOut(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]struct {
		do   func(*Lock, context.Context) error
		want error
	}{"Unlock": {(*Lock).Unlock, redlatch.ErrNoQuorum}, "Extend": {(*Lock).Extend, redlatch.ErrLost}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := &slowConn{takes: commandTimeout / 2}
				locker := &Locker{config: Config{Timeout: time.Second}, patience: commandTimeout, conn: conn, inFlight: make(chan struct{}, 1)}
				lock, err := newLock(t.Context(), locker, "a", "lock.a", locker.validity())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second - commandTimeout/4)
				if err := act.do(lock, t.Context()); conn.sent > 0 || !errors.Is(err, act.want) {
					t.Errorf("sent %d times: %v", conn.sent, err)
				}
			})
		})
	}
}

// A lock is over for its holder as soon as the wall clock, which may have been stepped forward, comes to the second of
// its value; others take it over when that second is past.
func TestSecondOfAValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := validity{value: time.Now().Unix() + 1, until: clock.System.Now().Add(time.Hour)}
		for _, want := range []struct{ over, expired bool }{{false, false}, {true, false}, {true, true}} {
			if got := expired(v.text()); v.over() != want.over || got != want.expired {
				t.Errorf("%v: over %t, expired %t, want %+v", time.Now(), v.over(), got, want)
			}
			time.Sleep(time.Second)
		}
	})
}

// okConn is a connection to a server that does all that it is asked.
type okConn struct{ driver.Conn }

func (okConn) Do(context.Context, ...string) (driver.Reply, error) {
	return driver.Reply{Kind: driver.Text, Text: "OK"}, nil
}

// The context of a lock that was extended ends when the extension runs out, though nobody looks at it.
func TestContextOfAnExtendedLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := &Locker{config: Config{Timeout: time.Minute}, patience: commandTimeout, conn: okConn{}, inFlight: make(chan struct{}, 1)}
		lock, err := newLock(t.Context(), locker, "a", "lock.a", locker.validity())
		if err != nil {
			t.Fatal(err)
		}
		start, done := time.Now(), lock.Context().Done()
		for range 3 {
			time.Sleep(40*time.Second + sleepCheck/4) // so that it does not end when tick looks anyway
			if err := lock.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		<-done
		if lasted := time.Since(start); lasted != 3*time.Minute+3*(sleepCheck/4) {
			t.Errorf("it ended after %v", lasted)
		}
	})
}

// What was written so long ago that it has run out is no lock.
func TestWrittenLongAgo(t *testing.T) {
	t.Parallel()
	locker := &Locker{config: Config{Timeout: time.Minute}}
	v := locker.validity()
	v.until = v.until.Add(-time.Minute)
	if lock, err := newLock(t.Context(), locker, "a", "lock.a", v); lock != nil || !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("%v, %v", lock, err)
	}
}

// endingConn is a connection to a server that says that the lock is held; end is called before it says so.
type endingConn struct {
	driver.Conn
	asked int
	end   func(asked int)
}

func (c *endingConn) Do(_ context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "SETNX" {
		return driver.Reply{Kind: driver.Int}, nil
	}
	c.asked++
	c.end(c.asked)
	return driver.Reply{Kind: driver.Text, Text: "9999999999"}, nil
}

// A caller whose ctx ends just before the answer that the lock is held learns what ended it, in the first try and later.
func TestEndBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for _, last := range []int{1, 2, 3} {
		reason := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		conn := &endingConn{end: func(asked int) {
			if asked == last {
				cancel(reason)
			}
		}}
		locker := &Locker{config: Config{Timeout: time.Minute, KeyTemplate: defaultTemplate}, patience: time.Minute, conn: conn, inFlight: make(chan struct{}, 1)}
		if _, err := locker.Lock(ctx, "a"); !errors.Is(err, reason) || !errors.Is(err, redlatch.ErrHeld) || conn.asked != last {
			t.Errorf("asked %d of %d times: %v", conn.asked, last, err)
		}
	}
}

// slowLock returns a lock of a server that is slow to answer, and the connection to that.
func slowLock(t *testing.T) (*slowConn, *Lock) {
	conn := &slowConn{takes: commandTimeout / 2}
	locker := &Locker{config: Config{Timeout: time.Minute}, patience: commandTimeout, conn: conn, inFlight: make(chan struct{}, 2)}
	lock, err := newLock(t.Context(), locker, "a", "lock.a", locker.validity())
	if err != nil {
		t.Fatal(err)
	}
	return conn, lock
}

// An Extend whose ctx ends while it waits for another to be answered learns what ended it, and is not sent.
func TestExtendBehindAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, lock := slowLock(t)
		first := make(chan error)
		go func() { first <- lock.Extend(t.Context()) }()
		synctest.Wait()
		reason := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		if err := lock.Extend(ctx); !errors.Is(err, reason) {
			t.Errorf("behind another: %v", err)
		}
		if <-first; conn.sent != 1 {
			t.Errorf("sent %d times", conn.sent)
		}
	})
}

// Unlock waits for an Extend under way: what that writes must not come to a key that is another's by then.
func TestUnlockBehindAnExtend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, lock := slowLock(t)
		go lock.Extend(t.Context()) // which is answered otherwise than by OK: its key is gone
		synctest.Wait()
		if err := lock.Unlock(t.Context()); conn.sent != 1 || !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("sent %d times: %v", conn.sent, err)
		}
	})
}

// refusingConn is a connection to a server that says that the lock is held, and then refuses the command.
type refusingConn struct {
	driver.Conn
	asked int
}

func (c *refusingConn) Do(_ context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "SETNX" {
		if c.asked++; c.asked > 1 {
			return driver.Reply{}, &driver.ServerError{Text: "NOPERM no"}
		}
		return driver.Reply{Kind: driver.Int}, nil
	}
	return driver.Reply{Kind: driver.Text, Text: "9999999999"}, nil
}

// What stood in the way of earlier tries is no part of the error of one that fails for another reason.
func TestRefusedInALaterTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := new(refusingConn)
		locker := &Locker{config: Config{Timeout: time.Minute, KeyTemplate: defaultTemplate}, patience: time.Minute, conn: conn, inFlight: make(chan struct{}, 1)}
		if _, err := locker.Lock(t.Context(), "a"); conn.asked != 2 || !errors.Is(err, redlatch.ErrRefused) || errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("asked %d times: %v", conn.asked, err)
		}
	})
}

// The ctx of a caller ends that connects to a server that hangs, and it is told the cause. Another caller, which
// waits for the same connection, is not told that its own ctx has ended.
func TestCtxOfAnotherCallerEnds(t *testing.T) {
	t.Parallel()
	locker, silent := openSilent(t)
	cause := errors.New("the cause")
	var ctx context.Context
	var peer net.Conn
	var callers sync.WaitGroup
	for peer == nil { // a busy machine may not connect in time
		ending, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, cause)
		defer cancel()
		ctx = ending
		callers.Go(func() {
			if _, err := locker.TryLock(ending, "a"); !errors.Is(err, cause) {
				t.Errorf("the caller whose ctx ends has the error %v", err)
			}
		})
		silent.SetDeadline(time.Now().Add(time.Second))
		peer, _ = silent.Accept()
	}
	defer peer.Close()
	callers.Go(func() {
		_, err := locker.TryLock(t.Context(), "b")
		if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller whose ctx goes on has the error %v", err)
		}
	})
	<-ctx.Done()
	silent.Close() // so that it is refused where it comes later
	callers.Wait()
}

// closedConn is a connection that answers nothing until it is closed.
type closedConn struct {
	driver.Conn
	closed chan struct{}
}

func (c closedConn) Close() { close(c.closed) }

func (c closedConn) Do(context.Context, ...string) (driver.Reply, error) {
	<-c.closed
	return driver.Reply{}, net.ErrClosed
}

// A caller whose command is under way when the Locker is closed learns that it was.
func TestCloseAmidACommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := &Locker{config: Config{Timeout: time.Minute, KeyTemplate: defaultTemplate}, patience: time.Minute, conn: closedConn{closed: make(chan struct{})}, inFlight: make(chan struct{}, 1)}
		ended := make(chan error)
		go func() { _, err := locker.TryLock(t.Context(), "a"); ended <- err }()
		synctest.Wait()
		go locker.Close()
		if err := <-ended; !errors.Is(err, redlatch.ErrClosed) || errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
	})
}
