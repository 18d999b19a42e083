package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// However many goroutines note changes, one is told after the other, and the last that is told is how
// it is in the end.
func TestReachIsToldInOrder(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for range 200 {
		var telling atomic.Int32
		told := false
		r := &Reach{tell: func(why error) {
			if telling.Add(1) > 1 {
				t.Error("told twice at the same time")
			}
			if told == (why != nil) {
				t.Errorf("told %v again", why)
			}
			told = why != nil
			telling.Add(-1)
		}}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for k := range 20 {
					r.Note(map[bool]error{true: away}[(i+k)%2 == 0])
				}
			})
		}
		all.Wait()
		r.mu.Lock()
		if told != (r.why != nil) || r.away.Load() != told || r.telling {
			t.Errorf("told %t, and it is %v", told, r.why)
		}
		r.mu.Unlock()
	}
}

// hung is a connection to a server that answers nothing while hangs is set, until over is closed.
type hung struct {
	scripted
	hangs atomic.Bool
	over  chan struct{}
}

func (c *hung) EvalSHA(ctx context.Context, _ string, _, _ []string) (driver.Reply, error) {
	if c.hangs.Load() {
		<-ctx.Done()
		return driver.Reply{}, ctx.Err()
	}
	return deleted, nil
}

func (c *hung) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if c.hangs.Load() {
		select {
		case <-c.over:
		case <-ctx.Done():
			return driver.Reply{}, ctx.Err()
		}
	}
	return c.scripted.Do(ctx, args...)
}

// A node that owes an answer for long cannot be reached, and can be when it has given it, though nothing more is asked; or
// when it answers another step. Nothing is told after the node was cut off.
func TestReachOfASilentNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []error
		is := func(when string, n int, want error) {
			t.Helper()
			synctest.Wait()
			if len(told) != n || n > 0 && !errors.Is(told[n-1], want) {
				t.Errorf("%s: told %v", when, told)
			}
		}
		conn := &hung{over: make(chan struct{})}
		n := New(conn, Options{
			Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
			ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
			Reachable: func(err error) { told = append(told, err) },
		})
		defer n.Close()
		extend := func(want vote.Verdict) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if a := n.Extend(ctx, vote.Extend{Key: "x", ID: "mine", TTL: time.Second}); a.Verdict != want {
				t.Errorf("%v, %v; want %v", a.Verdict, a.Err, want)
			}
		}
		extend(vote.Granted)
		conn.hangs.Store(true)
		extend(vote.Unknown)
		is("it owes an answer for a moment", 0, nil)
		time.Sleep(2 * n.options.Patience)
		extend(vote.NotSent)
		is("it owes an answer for long", 1, errSilent)
		close(conn.over)
		is("it has answered", 2, nil)

		conn.hangs.Store(false)
		n.noteReach(errSilent)
		extend(vote.Granted)
		is("it answers another step", 4, nil)
		n.Cut()
		n.noteReach(errSilent)
		is("it was cut off", 4, nil)
	})
}

// In a Cluster whose masters do not say who has the slot no vote is sent, and that is told. When another server has it,
// the next vote looks at the one that has it.
func TestReachOfASlotWithoutAMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []error
		v := &view{
			more:  make(chan struct{}),
			clock: clock.System,
			ask:   func(context.Context, string) (driver.Reply, error) { return driver.Reply{}, errNoAnswer },
			start: func(f func(context.Context)) { go f(t.Context()) },
		}
		n := New(&scripted{answer: released}, Options{
			slotTag: "7", view: v, reach: &Reach{tell: func(err error) { told = append(told, err) }, lost: v.silent.Load},
			Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		n.link.connected.Store(1)
		n.link.seen.Store(&sighting{run: "a", connection: 1})
		extend := func() vote.Answer { return n.Extend(t.Context(), vote.Extend{Key: "x", ID: "mine", TTL: time.Second}) }
		if a := extend(); !errors.Is(a.Err, errNoMajority) || len(told) != 1 || !errors.Is(told[0], errNoMajority) {
			t.Errorf("nobody answers: %v, told %v", a.Err, told)
		}
		n.link.connected.Store(1)
		v.ask = func(context.Context, string) (driver.Reply, error) {
			text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
			return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("b"), text("m 127.0.0.1:1 myself,master - 0 0 1 connected 0-16383\n")}}, nil
		}
		if a := extend(); !errors.Is(a.Err, errReplaced) || n.link.connected.Load() != 0 {
			t.Errorf("another server has the slot: %v, connected by %d", a.Err, n.link.connected.Load())
		}
		n.end()
		n.background.Wait()
	})
}
