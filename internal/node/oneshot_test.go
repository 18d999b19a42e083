package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// restricted is a connection, without transactions, to a server that knows no command that compares. Its user may
// run no scripts until permitted.
type restricted struct {
	scripted
	permitted atomic.Bool
}

func (c *restricted) EvalSHA(context.Context, string, []string, []string) (driver.Reply, error) {
	if !c.permitted.Load() {
		return driver.Reply{}, &driver.ServerError{Text: "NOPERM User me has no permissions to run the 'evalsha' command"}
	}
	return deleted, nil
}

func (c *restricted) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	switch args[0] {
	case "DELEX", "DELIFEQ", "SET":
		return driver.Reply{}, &driver.ServerError{Text: "ERR syntax error"}
	}
	return c.scripted.Do(ctx, args...)
}

// Where a node can do a step by no means, for lack of a transaction, the error says what was denied; and what is
// permitted later counts.
func TestNoTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		replicated := Replicas{Conn: &acknowledging{history: strings.Repeat("r", 40) + " " + strings.Repeat("i", 40)}, Want: 1, Limit: time.Second}
		for name, c := range map[string]struct {
			replicas Replicas
			step     func(*Node) vote.Answer
		}{
			"release":                 {step: func(n *Node) vote.Answer { return n.Drop(t.Context(), AnyWay, vote.Release{Key: "x", ID: "mine"}) }},
			"extend":                  {step: func(n *Node) vote.Answer { return n.Prolong(t.Context(), AnyWay, vote.Extend{Key: "x", ID: "mine"}) }},
			"extend on replicas, too": {replicated, func(n *Node) vote.Answer { return n.Prolong(t.Context(), AnyWay, vote.Extend{Key: "x", ID: "mine"}) }},
		} {
			conn := &restricted{scripted: scripted{answer: released}}
			n := New(conn, Options{
				Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
				ConnectTimeout: time.Second, Patience: time.Second, Replicas: c.replicas, Logger: slog.New(slog.DiscardHandler),
			})
			if a := c.step(n); a.Verdict != vote.Refused || !strings.Contains(a.Err.Error(), "'evalsha'") || !strings.Contains(a.Err.Error(), "transaction") {
				t.Errorf("%s, not permitted: %v, %v", name, a.Verdict, a.Err)
			}
			if a := c.step(n); c.replicas.Conn != nil && !errors.Is(a.Err, errUnacknowledged) {
				t.Errorf("%s, not permitted: %v", name, a.Err)
			}
			conn.permitted.Store(true)
			if a := c.step(n); a.Verdict != vote.Granted {
				t.Errorf("%s, permitted: %v, %v", name, a.Verdict, a.Err)
			}
			n.end()
			n.background.Wait()
		}
	})
}

// narrow is a connection to a server whose user may use the key "denied" with SET alone, as a script needs keys beside it.
type narrow struct{ scripted }

func (c *narrow) EvalSHA(_ context.Context, _ string, keys, _ []string) (driver.Reply, error) {
	if keys[0] == "denied" {
		return driver.Reply{}, &driver.ServerError{Text: "NOPERM No permissions to access a key"}
	}
	return driver.Reply{Kind: driver.Int, Int: 7}, nil
}

func (c *narrow) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "SET" {
		return driver.Reply{Kind: driver.Text, Text: "OK"}, nil
	}
	return c.scripted.Do(ctx, args...)
}

// That scripts are denied for one key says nothing of another: there a lock has its token.
func TestDeniedKey(t *testing.T) {
	t.Parallel()
	n := New(&narrow{scripted{answer: released}}, Options{
		Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
		ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	defer n.background.Wait()
	defer n.end()
	for _, c := range []struct {
		key     string
		counter uint64
	}{{"denied", 0}, {"permitted", 7}} {
		if a := n.Take(t.Context(), AnyWay, vote.Acquire{Key: c.key, ID: "mine", TTL: time.Second}); a.Verdict != vote.Granted || a.Counter != c.counter {
			t.Errorf("%s: %v under %d, want %d: %v", c.key, a.Verdict, a.Counter, c.counter, a.Err)
		}
	}
}

// inspecting is a connection for WAIT. Whenever that is tried, an inspection has just begun that has compared nothing yet.
type inspecting struct {
	acknowledging
	node *Node
}

func (c *inspecting) Batch(ctx context.Context, commands ...[]string) ([]driver.Reply, []error) {
	seen := c.node.link.seen.Load()
	c.node.link.seen.Store(&sighting{connection: seen.connection, run: seen.run, history: seen.history})
	return c.acknowledging.Batch(ctx, commands...)
}

// A vote that reads no admission is not sent on the strength of an inspection that has not compared the settings.
func TestNoVoteBeforeSettingsAreCompared(t *testing.T) {
	t.Parallel()
	conn := &inspecting{}
	n := New(&narrow{scripted{answer: released}}, Options{
		Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
		ConnectTimeout: time.Second, Patience: time.Second, Replicas: Replicas{Conn: conn, Want: 1, Limit: time.Second}, Logger: slog.New(slog.DiscardHandler),
	})
	conn.node = n
	defer n.background.Wait()
	defer n.end()
	if reply, err := n.write(t.Context(), "SET", "x", "mine", "PX", "1000"); !errors.Is(err, errAdmissionChanges) {
		t.Errorf("%v, %v", reply, err)
	}
}

// replaceable is a connection to a server whose user may run no scripts, in whose place another comes.
type replaceable struct {
	narrow
	replaced bool
}

func (c *replaceable) EvalSHA(_ context.Context, _ string, keys, _ []string) (driver.Reply, error) {
	if !c.replaced {
		return driver.Reply{}, &driver.ServerError{Text: "NOPERM User me has no permissions to run the 'evalsha' command"}
	}
	return driver.Reply{Kind: driver.Int, Int: 7}, nil
}

func (c *replaceable) Connections() uint64 {
	if c.replaced {
		return 3
	}
	return 1
}

// What one server could not do says nothing of the next: there a lock has its token.
func TestDeniedByTheServerBefore(t *testing.T) {
	t.Parallel()
	conn := &replaceable{narrow: narrow{scripted{answer: released}}}
	n := voter(t, conn, math.MaxInt)
	for _, counter := range []uint64{0, 7} {
		if a := n.Take(t.Context(), AnyWay, vote.Acquire{Key: "x", ID: "mine", TTL: time.Second}); a.Verdict != vote.Granted || a.Counter != counter {
			t.Errorf("%v under %d, want %d: %v", a.Verdict, a.Counter, counter, a.Err)
		}
		conn.replaced = true
	}
}

// A release without an answer is sent again. That the key is then not this holder's does not say that it was not
// before, and the error tells what was found.
func TestDropIsSentAgain(t *testing.T) {
	t.Parallel()
	other := driver.Reply{Kind: driver.Array, Array: []driver.Reply{{Kind: driver.Text, Text: "another"}, {Kind: driver.Int, Int: 1000}}}
	for name, c := range map[string]struct {
		again   driver.Reply
		verdict vote.Verdict
		says    string
	}{
		"released": {deleted, vote.Granted, "<nil>"},
		"gone":     {driver.Reply{Kind: driver.Int}, vote.Unknown, "may have deleted"},
		"held":     {other, vote.Unknown, "may have deleted"},
	} {
		broken, sent := errors.New("broken"), 0
		n := voter(t, &scripted{answer: func(string) (driver.Reply, error) {
			if sent++; sent == 1 {
				return driver.Reply{}, broken
			}
			return c.again, nil
		}}, math.MaxInt)
		a := n.Drop(t.Context(), Scripts, vote.Release{Key: "x", ID: "mine", TTL: time.Second})
		if text := fmt.Sprint(a.Err); a.Verdict != c.verdict || sent != 2 || !strings.Contains(text, c.says) || errors.Is(a.Err, broken) != (a.Err != nil) {
			t.Errorf("%s: %v after %d, %s", name, a.Verdict, sent, text)
		}
	}
}

// taken is a connection to a server where another holder takes the key between two commands.
type taken struct {
	scripted
	asked int
}

func (c *taken) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	switch {
	case args[0] == "PTTL":
		c.asked++
		return driver.Reply{Kind: driver.Int, Int: int64(c.asked) * 1000}, nil
	case args[0] == "EVAL" && args[1] == script.Look.Text:
		holder := driver.Reply{Kind: driver.Text, Text: "holder " + strconv.Itoa(min(c.asked, 1))}
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{holder}}, nil
	}
	return c.scripted.Do(ctx, args...)
}

// The time that a key has left is told with the holder whose time it is.
func TestQueryWhileTheKeyIsTaken(t *testing.T) {
	t.Parallel()
	n := voter(t, &taken{scripted: scripted{answer: released}}, math.MaxInt)
	if a := n.Query(t.Context(), "x"); a.Verdict != vote.Held || a.Holder != "holder 1" || a.Left != 2*time.Second {
		t.Errorf("%+v", a)
	}
}

// emptied is a connection to a server where a key without a value goes between two commands.
type emptied struct {
	scripted
	gone bool
}

func (c *emptied) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	switch {
	case args[0] == "PTTL":
		c.gone = true
		return driver.Reply{Kind: driver.Int, Int: -2}, nil
	case args[0] == "EVAL" && args[1] == script.Look.Text:
		value := driver.Reply{Kind: driver.Text}
		if c.gone {
			value = driver.Reply{}
		}
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{value}}, nil
	}
	return c.scripted.Do(ctx, args...)
}

// A key without a value that is gone is not said to stay for ever.
func TestQueryWhileAnEmptyKeyGoes(t *testing.T) {
	t.Parallel()
	n := voter(t, &emptied{scripted: scripted{answer: released}}, math.MaxInt)
	if a := n.Query(t.Context(), "x"); a.Verdict != vote.NotOurs || a.Left != 0 {
		t.Errorf("%+v", a)
	}
}

// A server that answers a look otherwise than it should is not taken for one that has no key.
func TestLookIsAnsweredOtherwise(t *testing.T) {
	t.Parallel()
	n := voter(t, &scripted{answer: released}, math.MaxInt)
	watched, _ := n.Watch(t.Context(), t.Context(), "x")
	_, all := n.ReadAll(t.Context(), []string{"x"}, true)
	for i, a := range []vote.Answer{watched, all, n.Read(t.Context(), "x"), n.Query(t.Context(), "x")} {
		if a.Verdict != vote.Unknown || !strings.Contains(a.Err.Error(), "PONG") {
			t.Errorf("%d: %+v", i, a)
		}
	}
}
