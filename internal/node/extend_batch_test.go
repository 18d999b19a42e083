package node

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// digits is a connection to a server that answers a batch of extensions with text, or fails, and an
// extension by itself that the key is another's.
type digits struct {
	scripted
	text string
	err  error
}

func (c *digits) EvalSHA(_ context.Context, _ string, _, args []string) (driver.Reply, error) {
	switch {
	case args[0] == script.Extend:
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{{Kind: driver.Text, Text: "theirs"}, {Kind: driver.Int, Int: 5000}}}, nil
	case c.err != nil:
		return driver.Reply{}, c.err
	}
	return driver.Reply{Kind: driver.Text, Text: c.text}, nil
}

// Each of a batch has the answer that it would have by itself; what cannot be the answer to all counts
// for none.
func TestExtendBatchAnswersOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		batch := []vote.Extend{{Key: "a", ID: "mine", TTL: time.Second}, {Key: "b", ID: "mine", TTL: time.Second}, {Key: "c", ID: "mine", TTL: time.Second}}
		broken := errors.New("the connection broke")
		denied := &driver.ServerError{Text: "NOPERM No permissions to access a key"} // which may be one of them
		for _, c := range []struct {
			text string
			err  error
			want [3]vote.Verdict
		}{
			{text: "111", want: [3]vote.Verdict{vote.Granted, vote.Granted, vote.Granted}},
			{text: "102", want: [3]vote.Verdict{vote.Granted, vote.NotOurs, vote.Held}},
			{text: "11", want: [3]vote.Verdict{vote.Refused, vote.Refused, vote.Refused}},
			{text: "1111", want: [3]vote.Verdict{vote.Refused, vote.Refused, vote.Refused}},
			{err: broken, want: [3]vote.Verdict{vote.Unknown, vote.Unknown, vote.Unknown}},
			{err: denied, want: [3]vote.Verdict{vote.Held, vote.Held, vote.Held}},
		} {
			n := voter(t, &digits{scripted: scripted{answer: released}, text: c.text, err: c.err}, math.MaxInt)
			for i, a := range n.ExtendBatch(t.Context(), batch) {
				if a.Verdict != c.want[i] {
					t.Errorf("%q, %v: answer %d is %v, want %v: %v", c.text, c.err, i, a.Verdict, c.want[i], a.Err)
				}
				if a.Verdict == vote.Held && (a.Holder != "theirs" || a.Left != 5*time.Second) {
					t.Errorf("held by %q for %v", a.Holder, a.Left)
				}
				if c.err == broken && !errors.Is(a.Err, broken) {
					t.Errorf("%v does not say why", a.Err)
				}
			}
		}
	})
}

// distant is a connection to a server that is far away.
type distant struct{ digits }

func (c *distant) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	time.Sleep(distance)
	return c.digits.EvalSHA(ctx, sha, keys, args)
}

const distance = 10 * time.Millisecond

// Where the server denies a key, the many that were to be extended with it do not wait for each other's answers.
func TestExtendBatchDeniedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		denied := &driver.ServerError{Text: "NOPERM No permissions to access a key"}
		n := voter(t, &distant{digits{scripted: scripted{answer: released}, err: denied}}, math.MaxInt)
		batch := make([]vote.Extend, 100)
		for i := range batch {
			batch[i] = vote.Extend{Key: strconv.Itoa(i), ID: "mine", TTL: time.Second}
		}
		start := time.Now()
		for _, a := range n.ExtendBatch(t.Context(), batch) {
			if a.Verdict != vote.Held {
				t.Fatal(a)
			}
		}
		if took := time.Since(start); took > 5*distance {
			t.Errorf("it took %v, the time of %d answers", took, took/distance)
		}
	})
}

// A node that owes an answer for longer than a step may take is still asked to extend several keys,
// which has more time; one that has owed it for a second is not.
func TestExtendBatchHasMoreTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := voter(t, &digits{scripted: scripted{answer: released}, text: "11"}, math.MaxInt)
		batch := []vote.Extend{{Key: "a", ID: "mine", TTL: time.Second}, {Key: "b", ID: "mine", TTL: time.Second}}
		inFlight := n.votes.Load()
		if a := n.ExtendBatch(t.Context(), batch); a[0].Verdict != vote.Granted {
			t.Fatal(a)
		}
		inFlight.mu.Lock()
		inFlight.silentSince = time.Now().Add(-n.options.Patience - time.Millisecond)
		inFlight.mu.Unlock()
		if a := n.Extend(t.Context(), batch[0]); a.Verdict != vote.NotSent {
			t.Errorf("by itself: %v", a.Verdict)
		}
		if a := n.ExtendBatch(t.Context(), batch); a[0].Verdict != vote.Granted || a[1].Verdict != vote.Granted {
			t.Errorf("together: %v", a)
		}
		inFlight.mu.Lock()
		inFlight.silentSince = time.Now().Add(-batchPatience - time.Millisecond)
		inFlight.mu.Unlock()
		if a := n.ExtendBatch(t.Context(), batch); a[0].Verdict != vote.NotSent || a[1].Verdict != vote.NotSent {
			t.Errorf("after a second: %v", a)
		}
	})
}
