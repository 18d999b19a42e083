package redisconn

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestIfEqual(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	ctx := within(t, patience)
	must(t, c, "SET", "k", "mine")
	made := c.Connections()

	found, _, err := c.IfEqual(ctx, "k", "other", "DEL", "k")
	if err != nil || found.Text != "mine" {
		t.Errorf("another's: %+v, %v", found, err)
	}
	if found, _, err = c.IfEqual(ctx, "nothing", "", "DEL", "k"); err != nil || found.Kind != driver.Null {
		t.Errorf("nothing: %+v, %v", found, err)
	}
	if must(t, c, "GET", "k").Text != "mine" {
		t.Fatal("deleted all the same")
	}
	// Sessions that were ended by the server while idle are no obstacle.
	proxy.Cut()
	found, reply, err := c.IfEqual(ctx, "k", "mine", "DEL", "k")
	if err != nil || found.Text != "mine" || reply.Int != 1 {
		t.Errorf("ours: %+v, %+v, %v", found, reply, err)
	}

	must(t, c, "RPUSH", "list", "x")
	for _, bad := range [][]string{{"list", "DEL", "list"}, {"k", "NOSUCH"}, {"k", "GET"}, {"k", "INCR", "k"}} {
		must(t, c, "SET", "k", "mine")
		_, _, err := c.IfEqual(ctx, bad[0], "mine", bad[1:]...)
		if _, ok := errors.AsType[*driver.ServerError](err); !ok {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if c.Connections() != made && c.Connections() != made+2 { // the cut one and the next
		t.Errorf("sessions count as the connection's own: %d, was %d", c.Connections(), made)
	}
}

// A session that broke stays so: what is watched was lost with it.
func TestSessionIsNotRenewed(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o, _, err := Parse(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.ConnectTimeout = patience
	c, err := newConn(o, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	must(t, c, "WATCH", "k")
	proxy.Cut()
	for deadline := time.Now().Add(patience); c.Connections() == 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		if _, err := c.Do(within(t, patience), "PING"); err == nil {
			t.Error("it was renewed")
		}
	}
}

// looking calls look, with a number, at each question whether it is done.
type looking struct {
	context.Context
	asked int
	look  func(asked int)
}

func (c *looking) Err() error {
	c.asked++
	c.look(c.asked)
	return c.Context.Err()
}

// The client sends a PING of its own where a caller stalls for so long that the connection is idle.
// In a transaction it is one command more, and what the transaction did is not said to be not sent.
func TestPingInATransaction(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := connect(t, server.URL())
	must(t, c, "SET", "k", "mine")
	session, err := newConn(c.options, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	queued := 0
	ctx := &looking{Context: within(t, patience)}
	ctx.look = func(asked int) {
		if asked > 1 && queued == 0 && must(t, session, "PING").Text == "QUEUED" { // WATCH, GET and MULTI are answered
			queued++
		}
	}
	found, reply, err := session.ifEqual(ctx, "k", "mine", []string{"SET", "k", "other"})
	if queued != 1 || must(t, c, "GET", "k").Text != "other" {
		t.Fatalf("%d PINGs in a transaction that was executed", queued)
	}
	if err != nil || found.Text != "mine" || reply.Text != "OK" {
		t.Errorf("%+v, %+v, %v", found, reply, err)
	}
}

// Increments by compare and set are not lost, with more callers than sessions.
func TestIfEqualIsAtomic(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := connect(t, server.URL())
	must(t, c, "SET", "turn", "free")
	ctx := within(t, patience)
	var inside, turns atomic.Int32
	var all sync.WaitGroup
	for range 3 * maxSessions {
		all.Go(func() {
			for turns.Load() < 50 {
				found, _, err := c.IfEqual(ctx, "turn", "free", "SET", "turn", "taken")
				if err != nil {
					t.Error(err)
					return
				}
				if found.Text != "free" {
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two found it free")
				}
				turns.Add(1)
				inside.Add(-1)
				if found, _, err := c.IfEqual(ctx, "turn", "taken", "SET", "turn", "free"); err != nil || found.Text != "taken" {
					t.Errorf("%+v, %v", found, err)
					return
				}
			}
		})
	}
	all.Wait()
	info, err := server.Info("clients")
	if n, _ := strconv.Atoi(info["connected_clients"]); err != nil || n < 2 || n > 2+maxSessions { // ours, and this one's
		t.Errorf("%d clients, %v", n, err)
	}
}

// ctx ends the wait whatever the server does.
func TestIfEqualOfASilentServer(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	must(t, c, "SET", "k", "mine")
	for _, command := range []string{"", "WATCH", "EXEC"} {
		proxy.OnCommand(func(seen redistest.Command) redistest.Action {
			if seen.Name() == command {
				return redistest.DropReply
			}
			return redistest.Pass
		})
		proxy.BlackHole(redistest.Both, command == "")
		ask := func() error {
			_, _, err := c.IfEqual(within(t, 2*inTime), "k", "mine", "SET", "k", "mine")
			return err
		}
		err := ask()
		if command == "EXEC" && errors.Is(err, driver.ErrNotSent) { // it was too late for EXEC
			err = sends(ask)
		}
		if notSent := errors.Is(err, driver.ErrNotSent); err == nil || notSent != (command != "EXEC") {
			t.Errorf("silent at %q: %v", command, err)
		}
		proxy.BlackHole(redistest.Both, false)
		proxy.OnCommand(nil)
		proxy.Cut()
	}
	c.Close()
}

// A caller whose ctx is done does not wait for the end of a session that the server does not answer.
func TestIfEqualEndsWithCtx(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := connect(t, proxy.URL())
	must(t, c, "SET", "k", "mine")
	begun := make(chan struct{}, 1)
	proxy.OnCommand(func(seen redistest.Command) redistest.Action {
		if seen.Name() != "WATCH" {
			return redistest.Pass
		}
		begun <- struct{}{}
		return redistest.DropReply
	})
	promptly(t, "the callers' end", func() {
		for range replyTimeout / time.Second { // the end of a session that hangs takes a second
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-begun; cancel() }()
			if _, _, err := c.IfEqual(ctx, "k", "mine", "DEL", "k"); !errors.Is(err, driver.ErrNotSent) {
				t.Error(err)
			}
		}
	})
}

// Close does not wait for a session that is being connected to a server that hangs.
func TestCloseWhileASessionConnects(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o, _, err := Parse(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	promptly(t, "Close", func() {
		c := open(t, o)
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		proxy.OnCommand(func(redistest.Command) redistest.Action {
			once() // HELLO: nothing else is sent before that is answered
			return redistest.DropReply
		})
		ended := make(chan error, 1)
		go func() {
			_, _, err := c.IfEqual(context.Background(), "k", "mine", "DEL", "k")
			ended <- err
		}()
		<-asked
		c.Close()
		if err := <-ended; !errors.Is(err, driver.ErrNotSent) {
			t.Errorf("closed: %v", err)
		}
	})
}

// Cut ends a session whose transaction the server does not answer, which Close waits a moment for.
func TestCutEndsASessionThatHangs(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o, _, err := Parse(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	soonest := time.Hour
	const most = 500 * time.Millisecond
	for try := 0; try < 20 && soonest > most; try++ { // a busy machine may be late
		c := open(t, o)
		must(t, c, "SET", "k", "mine")
		asked := make(chan struct{})
		proxy.OnCommand(func(seen redistest.Command) redistest.Action {
			if seen.Name() != "EXEC" {
				return redistest.Pass
			}
			close(asked)
			return redistest.DropReply
		})
		ended := make(chan error, 1)
		go func() {
			_, _, err := c.IfEqual(context.Background(), "k", "mine", "SET", "k", "mine")
			ended <- err
		}()
		<-asked
		start := time.Now()
		c.Cut()
		c.Close()
		soonest = min(soonest, time.Since(start))
		if err := <-ended; err == nil || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("the transaction: %v", err)
		}
	}
	if soonest > most {
		t.Errorf("it took %v", soonest)
	}
}
