package node

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// promoted is a connection to a server that gets another replication id before its first vote, as by a demotion and a
// promotion. Then it votes for those who know that, but as long as unsure for nobody.
type promoted struct {
	scripted
	asked  atomic.Int64
	unsure bool
}

func (c *promoted) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "EVAL" && args[1] == script.Voting("d").Text { // it is admitted
		return driver.Reply{Kind: driver.Int, Int: 1}, nil
	}
	reply, err := c.scripted.Do(ctx, args...)
	if c.asked.Load() > 0 && reply.Kind == driver.Array {
		reply.Array[0].Text = strings.Replace(reply.Array[0].Text, strings.Repeat("i", 40), strings.Repeat("j", 40), 1)
	}
	return reply, err
}

func (c *promoted) EvalSHA(_ context.Context, _ string, _, args []string) (driver.Reply, error) {
	if c.asked.Add(1) == 1 || c.unsure || !strings.Contains(strings.Join(args, " "), strings.Repeat("j", 40)) {
		return driver.Reply{}, &driver.ServerError{Text: "NOSCRIPT No matching script"}
	}
	return driver.Reply{Kind: driver.Int, Int: 1}, nil
}

// A vote of a server that is admitted anew is asked for once more at once, as the server is now, and not a third time.
func TestVoteAfterAnAdmission(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unsure bool
		want   vote.Verdict
	}{{false, vote.Granted}, {true, vote.NotAdmitted}} {
		synctest.Test(t, func(t *testing.T) {
			conn := &promoted{scripted: scripted{answer: released}, unsure: c.unsure}
			n := voter(t, conn, math.MaxInt)
			a := n.Extend(t.Context(), vote.Extend{Key: "x", ID: "mine", TTL: time.Second})
			if asked := conn.asked.Load(); a.Verdict != c.want || asked != 2 {
				t.Errorf("unsure: %t: %v, %v, asked %d times", c.unsure, a.Verdict, a.Err, asked)
			}
		})
	}
}
