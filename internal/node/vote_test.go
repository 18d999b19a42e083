package node

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strconv"
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

// renewed is a connection to a server that grants everything, and is renewed before the
// answer to a vote where renew is true.
type renewed struct {
	scripted
	number atomic.Uint64
	renew  bool
	reply  driver.Reply // to an acquire step
}

func (c *renewed) Connections() uint64 { return 1 + c.number.Load() }

func (c *renewed) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if sha == script.Releasing.SHA {
		return c.scripted.EvalSHA(ctx, sha, keys, args)
	}
	if c.renew {
		c.number.Add(1)
	}
	if args[0] == script.Batch {
		return driver.Reply{Kind: driver.Text, Text: "1"}, nil
	}
	return c.reply, nil
}

func voter(t *testing.T, conn driver.Conn, batchAbove int) *Batched {
	t.Helper()
	n := Batch(New(conn, Options{
		Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: 30 * time.Second, NoQuarantine: true},
		ConnectTimeout: time.Second, Patience: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}), batchAbove)
	t.Cleanup(n.Close)
	return n
}

var released = func(string) (driver.Reply, error) { return deleted, nil }

// A vote that comes by another connection than the one through which the server was looked at
// may be another server's: it is not counted, whether the step was sent by itself or went
// together with others.
func TestVoteOfAnotherConnectionIsNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, batchAbove := range map[string]int{"by itself": math.MaxInt, "together": -1} {
			for _, renew := range []bool{false, true} {
				conn := &renewed{scripted: scripted{answer: released}, renew: renew, reply: driver.Reply{Kind: driver.Int, Int: 7}}
				n := voter(t, conn, batchAbove)
				a := n.Acquire(t.Context(), vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7})
				want := vote.Granted
				if renew {
					want = vote.Unknown // it may have been executed
				}
				if a.Verdict != want {
					t.Errorf("%s, renewed %t: %+v", name, renew, a)
				}
			}
		}
	})
}

// A grant under a number that no token counter can be is none, and is undone.
func TestGrantUnderNoCounter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		number := func(n int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: n} }
		array := func(n int64) driver.Reply {
			return driver.Reply{Kind: driver.Array, Array: []driver.Reply{number(n), number(1), number(1)}}
		}
		for _, c := range []struct {
			reply driver.Reply
			want  vote.Verdict
		}{
			{number(1), vote.Granted},
			{number(script.MaxCounter), vote.Granted},
			{array(script.MaxCounter), vote.Granted},
			{number(script.MaxCounter + 1), vote.Refused},
			{number(-1), vote.Refused},
			{number(math.MinInt64), vote.Refused},
			{array(0), vote.Refused},
			{array(-5), vote.Refused},
			{array(script.MaxCounter + 1), vote.Refused},
		} {
			conn := &renewed{scripted: scripted{answer: released}, reply: c.reply}
			n := voter(t, conn, math.MaxInt)
			a := n.Acquire(t.Context(), vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7})
			undone := conn.tries("mine") == 1
			if a.Verdict != c.want || undone != (c.want == vote.Refused) {
				t.Errorf("%v: %+v, undone %t", c.reply, a, undone)
			}
			if undone && !strings.Contains(a.Err.Error(), `"redlatch:{x}:token:x"`) {
				t.Errorf("%v: %v", c.reply, a.Err)
			}
		}
	})
}

// forgetful is a server that has lost its scripts, and notes what it is sent by its text.
type forgetful struct {
	scripted
	mu    sync.Mutex // guards steps
	steps []string
}

func (c *forgetful) EvalSHA(context.Context, string, []string, []string) (driver.Reply, error) {
	return driver.Reply{}, &driver.ServerError{Text: "NOSCRIPT No matching script"}
}

func (c *forgetful) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "EVAL" && args[1] == script.Voting("d").Text {
		keys, err := strconv.Atoi(args[2])
		if err != nil {
			return driver.Reply{}, err
		}
		c.mu.Lock()
		c.steps = append(c.steps, args[3+keys])
		c.mu.Unlock()
		return driver.Reply{Kind: driver.Int, Int: 1}, nil
	}
	return c.scripted.Do(ctx, args...)
}

// A node that does not know the voting script may have forgotten locks: it is inspected, and
// admitted or not. No step but the admission is sent by its text, which would have it vote.
func TestStepIsNotSentByItsText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &forgetful{scripted: scripted{answer: released}}
		n := voter(t, conn, math.MaxInt)
		extension := vote.Extend{Key: "x", ID: "mine", TTL: time.Second, Token: 7}
		for name, a := range map[string]vote.Answer{
			"acquire": n.Acquire(t.Context(), vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7}),
			"extend":  n.Extend(t.Context(), extension),
			"repair":  n.Repair(t.Context(), extension),
			"confirm": n.Confirm(t.Context(), vote.Confirm{Key: "x", ID: "mine", Granted: 6, Token: 7}),
			"enqueue": n.Enqueue(t.Context(), vote.Enqueue{Key: "x", Ticket: vote.Ticket{Waiter: "me"}}).Answer,
		} {
			if a.Verdict != vote.NotAdmitted {
				t.Errorf("%s: %+v", name, a)
			}
		}
		n.Close()
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if len(conn.steps) == 0 || slices.ContainsFunc(conn.steps, func(step string) bool { return step != script.Admit }) {
			t.Errorf("sent by its text: %q", conn.steps)
		}
	})
}

// That no reply is known of a script which a Cluster's node ended midway is explained.
func TestEndedMidway(t *testing.T) {
	text := "ERR Script attempted to access a non local key in a cluster node script: 3d4d, on @user_script:7."
	answer := failure(&driver.ServerError{Text: text})
	if answer.Verdict != vote.Unknown || !strings.Contains(answer.Err.Error(), "is being moved") || !strings.Contains(answer.Err.Error(), text) {
		t.Errorf("%v: %v", answer.Verdict, answer.Err)
	}
}
