package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// away is a connection that breaks while the server is looked at, as long as failure is set.
type away struct {
	renewed
	failure error
	looks   int
}

func (c *away) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if c.failure != nil {
		c.looks++
		return driver.Reply{}, c.failure
	}
	return c.scripted.Do(ctx, args...)
}

// A step at a server that could not be looked at was not sent. It is not looked at again at once, and the
// client is told that it cannot be reached, and that it can be again.
func TestServerThatCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []error
		conn := &away{renewed: renewed{scripted: scripted{answer: released}, reply: deleted}, failure: errors.New("connection reset")}
		n := New(conn, Options{
			Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
			ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
			Reachable: func(err error) { told = append(told, err) },
		})
		defer n.Close()
		extend := func() vote.Answer { return n.Extend(t.Context(), vote.Extend{Key: "x", ID: "mine", TTL: time.Second}) }
		for range 10 {
			if a := extend(); a.Verdict != vote.NotSent || !errors.Is(a.Err, conn.failure) {
				t.Errorf("away: %v, %v", a.Verdict, a.Err)
			}
		}
		if conn.looks != 1 || len(told) != 1 || !errors.Is(told[0], conn.failure) {
			t.Errorf("away: looked at %d times, told %v", conn.looks, told)
		}
		conn.failure = nil
		time.Sleep(redialPause)
		if a := extend(); a.Verdict != vote.Granted || len(told) != 2 || told[1] != nil {
			t.Errorf("back: %v, %v; told %v", a.Verdict, a.Err, told)
		}
	})
}

// slow is a connection to a server that takes a while to say what it is.
type slow struct {
	scripted
	looks atomic.Int64
}

func (c *slow) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "EVAL" && args[1] == script.Inspect.Text {
		c.looks.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
	return c.scripted.Do(ctx, args...)
}

// Those who ask for a vote while the server is being looked at wait for that, and do not look for themselves.
func TestServerIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &slow{scripted: scripted{answer: released}}
		n := voter(t, conn, math.MaxInt)
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if a := n.Extend(t.Context(), vote.Extend{Key: "x", ID: "mine", TTL: time.Second}); a.Verdict != vote.Granted {
					t.Errorf("%v, %v", a.Verdict, a.Err)
				}
			})
		}
		callers.Wait()
		if looks := conn.looks.Load(); looks != 1 {
			t.Errorf("it was looked at %d times", looks)
		}
	})
}

// unready is a connection that is never made, which is known after a while only.
type unready struct{ scripted }

func (*unready) Do(context.Context, ...string) (driver.Reply, error) {
	time.Sleep(time.Second)
	return driver.Reply{}, driver.NotSent(errors.New("no TLS there"))
}

// Callers whose time is over while the server is being connected to are told why that has failed before.
func TestStillConnecting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(&unready{}, Options{
			Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
			ConnectTimeout: 2 * time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		defer n.Close()
		for try, want := range []string{"not sent: still connecting", "not sent: still connecting; the try before failed: no TLS there"} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			a := n.Extend(ctx, vote.Extend{Key: "x", ID: "mine", TTL: time.Second})
			cancel()
			if a.Verdict != vote.NotSent || a.Err.Error() != want {
				t.Errorf("try %d: %v, %v, want %s", try, a.Verdict, a.Err, want)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// demoted is a connection, of those that look for the master, to a server that is made a replica when replica is set.
type demoted struct {
	scripted
	replica bool
	sought  int
}

func (c *demoted) EvalSHA(context.Context, string, []string, []string) (driver.Reply, error) {
	if c.replica {
		return driver.Reply{}, &driver.ServerError{Text: "READONLY You can't write against a read only replica."}
	}
	return deleted, nil
}

func (c *demoted) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	reply, err := c.scripted.Do(ctx, args...)
	if c.replica && args[0] == "EVAL" && args[1] == script.Inspect.Text {
		reply.Array[0].Text = strings.Replace(reply.Array[0].Text, "role:master", "role:slave", 1)
	}
	return reply, err
}

func (c *demoted) Seek(context.Context) bool {
	c.sought++
	return true
}

// A server that says that it is a replica now is looked at again, and the master is looked for, though the connection
// stands.
func TestMasterIsSoughtAfterADemotion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &demoted{scripted: scripted{answer: released}}
		n := voter(t, conn, math.MaxInt)
		extend := func() vote.Answer { return n.Extend(t.Context(), vote.Extend{Key: "x", ID: "mine", TTL: time.Second}) }
		if a := extend(); a.Verdict != vote.Granted {
			t.Fatal(a)
		}
		conn.replica = true
		if a := extend(); a.Verdict != vote.Unavailable {
			t.Errorf("first: %v, %v", a.Verdict, a.Err)
		}
		if a := extend(); a.Verdict != vote.NotSent || !errors.Is(a.Err, admission.ErrReplica) || conn.sought != 1 {
			t.Errorf("then: %v, %v, sought %d times", a.Verdict, a.Err, conn.sought)
		}
	})
}
