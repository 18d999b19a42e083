package quorum

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// reply is what a node answers to a poll, and when.
type reply struct {
	after   time.Duration
	verdict vote.Verdict
}

// longest is how long the polls here may take.
const longest = 40 * time.Millisecond

// polled puts a poll with these replies. undone are the nodes that were told to
// undo it, once all is over.
func polled(ctx context.Context, t *testing.T, ttl time.Duration, replies ...reply) (granted bool, took time.Duration, undone func() []int) {
	t.Helper()
	e := New(make([]Voter, len(replies)), newBubbleClock(), stepTime)
	var mu sync.Mutex
	var nodes []int
	start := time.Now()
	granted, _ = e.Put(ctx, Poll{
		Ask: func(ctx context.Context, i int) vote.Answer {
			select {
			case <-time.After(replies[i].after):
				return vote.Answer{Verdict: replies[i].verdict}
			case <-ctx.Done():
				return vote.Answer{Verdict: vote.Unknown, Err: errSimulated}
			}
		},
		Enough: func(answers []vote.Answer) bool {
			need := Majority(len(answers))
			return Count(answers, vote.Granted) >= need || Count(answers, vote.Held) > len(answers)-need
		},
		Undo: func(_ context.Context, i int) {
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, i)
		},
		TTL:      ttl,
		Longest:  longest,
		Patience: 1,
	})
	return granted, time.Since(start), func() []int {
		e.Close()
		slices.Sort(nodes)
		return nodes
	}
}

// A lost poll is undone where it was granted, before and after it was decided,
// and nowhere else; one that was won is not. A hung node is not waited for once
// the answer is known.
func TestPoll(t *testing.T) {
	t.Parallel()
	const ms, hung = time.Millisecond, time.Hour
	yes, no, out := vote.Granted, vote.Held, vote.NotSent
	for name, c := range map[string]struct {
		ttl     time.Duration
		cancel  time.Duration
		replies []reply
		granted bool
		took    time.Duration
		undone  []int
	}{
		"quorum":        {time.Second, 0, []reply{{ms, yes}, {2 * ms, yes}, {hung, yes}}, true, 2 * ms, nil},
		"late yes":      {time.Second, 0, []reply{{ms, yes}, {2 * ms, yes}, {9 * ms, yes}}, true, 2 * ms, nil},
		"held":          {time.Second, 0, []reply{{ms, no}, {2 * ms, no}, {hung, yes}}, false, 2 * ms, nil},
		"undone early":  {time.Second, 0, []reply{{ms, yes}, {2 * ms, no}, {3 * ms, no}}, false, 4 * ms, []int{0}},
		"undone late":   {time.Second, 0, []reply{{ms, no}, {2 * ms, no}, {9 * ms, yes}}, false, 2 * ms, []int{2}},
		"no answer":     {time.Second, 0, []reply{{ms, yes}, {hung, yes}, {hung, yes}}, false, stepTime + ms, []int{0}},
		"unreplicated":  {time.Second, 0, []reply{{ms, vote.NotReplicated}, {2 * ms, yes}, {3 * ms, out}}, false, 4 * ms, []int{0, 1}},
		"down":          {time.Second, 0, []reply{{ms, yes}, {ms, out}, {4 * ms, out}}, false, 5 * ms, []int{0}},
		"validity over": {10 * ms, 0, []reply{{ms, yes}, {9 * ms, yes}, {ms, out}}, false, 10 * ms, []int{0, 1}},
		"too long":      {time.Second, 0, []reply{{ms, yes}, {longest, yes}, {ms, out}}, false, longest + ms, []int{0, 1}},
		"just in time":  {time.Second, 0, []reply{{ms, yes}, {longest - 1, yes}, {ms, out}}, true, longest - 1, nil},
		"ctx ends":      {time.Second, 5 * ms, []reply{{ms, yes}, {9 * ms, yes}, {hung, yes}}, false, 5 * ms, []int{0, 1}},
		"one node":      {time.Second, 0, []reply{{ms, yes}}, true, ms, nil},
		"even, split":   {time.Second, 0, []reply{{ms, yes}, {ms, yes}, {2 * ms, no}, {3 * ms, no}}, false, 4 * ms, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel != 0 {
					defer time.AfterFunc(c.cancel, cancel).Stop()
				}
				granted, took, undone := polled(ctx, t, c.ttl, c.replies...)
				if granted != c.granted || took != c.took {
					t.Errorf("granted %t after %v, want %t after %v", granted, took, c.granted, c.took)
				}
				if got := undone(); !slices.Equal(got, c.undone) {
					t.Errorf("undone on %v, want %v", got, c.undone)
				}
			})
		})
	}
}

// A poll that bounds nothing waits for all answers, however late they are, and takes none back.
func TestPollWithoutBounds(t *testing.T) {
	t.Parallel()
	for granting, want := range map[int]bool{1: false, 2: true} {
		synctest.Test(t, func(t *testing.T) {
			e := New(make([]Voter, 3), newBubbleClock(), stepTime)
			defer e.Close()
			granted, answers := e.Put(t.Context(), Poll{Patience: 1, Ask: func(_ context.Context, i int) vote.Answer {
				time.Sleep(time.Duration(i) * time.Hour)
				if i < granting {
					return vote.Answer{Verdict: vote.Granted}
				}
				return vote.Answer{Verdict: vote.Held}
			}})
			if granted != want || Count(answers, vote.Held) != 3-granting {
				t.Errorf("granted %t: %v", granted, answers)
			}
		})
	}
}

// A ctx that panics ends the poll. What is granted to it is undone, for which a node has the time of a release.
func TestContextThatPanicsLosesThePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(make([]Voter, 3), newBubbleClock(), stepTime)
		var undone atomic.Int32
		start := time.Now()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			e.Put(panicking{t.Context(), false}, Poll{
				Patience: 1,
				Ask:      func(context.Context, int) vote.Answer { return vote.Answer{Verdict: vote.Granted} },
				Undo:     func(ctx context.Context, _ int) { undone.Add(1); <-ctx.Done() },
			})
		}()
		e.Close()
		if n, took := undone.Load(), time.Since(start); n != 3 || took != releasePatience*stepTime {
			t.Errorf("undone on %d nodes in %v", n, took)
		}
	})
}

// A poll that undoes nothing begins when what it is about is not undone any more, or not at all where ctx ends
// before. It does not wait for a poll that was won, or that is about something else.
func TestPollWaitsForTheUndoingOfAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of      string
		verdict vote.Verdict
		limit   time.Duration
		asked   bool
		after   time.Duration
	}{
		"undone":       {"a", vote.Granted, time.Hour, true, 3 * time.Second},
		"ctx ends":     {"a", vote.Granted, 2 * time.Second, false, 2 * time.Second},
		"not granted":  {"a", vote.Held, time.Hour, true, time.Second},
		"another's":    {"b", vote.Granted, time.Hour, true, 0},
		"about nobody": {"", vote.Granted, time.Hour, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(make([]Voter, 1), newBubbleClock(), time.Hour)
				defer e.Close()
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				first := Poll{
					Patience: 1, Of: "a",
					Ask: func(context.Context, int) vote.Answer {
						time.Sleep(time.Second)
						return vote.Answer{Verdict: c.verdict}
					},
					Undo: func(context.Context, int) { time.Sleep(2 * time.Second) },
				}
				if granted, _ := e.Put(gone, first); granted {
					t.Error("granted after its ctx")
				}
				won := first
				won.Ask = func(_ context.Context, i int) vote.Answer { return vote.Answer{Verdict: vote.Granted} }
				if granted, _ := e.Put(t.Context(), won); !granted {
					t.Error("not granted")
				}
				ctx, stop := context.WithTimeout(t.Context(), c.limit)
				defer stop()
				start, asked := time.Now(), false
				granted, answers := e.Put(ctx, Poll{Patience: 1, Of: c.of, Ask: func(context.Context, int) vote.Answer {
					asked = true
					return vote.Answer{Verdict: vote.Granted}
				}})
				if after := time.Since(start); asked != c.asked || granted != c.asked || len(answers) != 1 || after != c.after {
					t.Errorf("asked: %t, granted: %t, %v after %v", asked, granted, answers, after)
				}
			})
		})
	}
}

// A poll that keeps the order asks a node when what an earlier one about the same asks it is over, and the others at once.
func TestPollInOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inOrder  bool
		of       string
		patience int
		last     time.Duration // when the node is asked that the first poll did not wait for
	}{
		"in order":         {true, "a", 3, 2 * time.Second},
		"its time is over": {true, "a", 1, time.Second},
		"not in order":     {false, "a", 3, 0},
		"about another":    {true, "b", 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(make([]Voter, 3), newBubbleClock(), time.Second)
				poll := Poll{
					Patience: c.patience, Of: "a",
					Ask: func(_ context.Context, i int) vote.Answer {
						if i == 2 {
							time.Sleep(2 * time.Second)
						}
						return vote.Answer{Verdict: vote.Granted}
					},
					Enough: func(answers []vote.Answer) bool { return Count(answers, vote.Granted) >= 2 },
					Undo:   func(context.Context, int) { t.Error("undone") },
				}
				if granted, _ := e.Put(t.Context(), poll); !granted {
					t.Error("not granted")
				}
				start := time.Now()
				var asked [3]time.Duration
				poll.Of, poll.InOrder, poll.Undo = c.of, c.inOrder, nil
				poll.Ask = func(_ context.Context, i int) vote.Answer {
					asked[i] = time.Since(start)
					return vote.Answer{Verdict: vote.Granted}
				}
				if granted, _ := e.Put(t.Context(), poll); !granted || time.Since(start) > 0 {
					t.Errorf("granted: %t, after %v", granted, time.Since(start))
				}
				e.Close()
				if want := [3]time.Duration{0, 0, c.last}; asked != want {
					t.Errorf("asked after %v, want %v", asked, want)
				}
				if kept := e.unsettled.about("a"); len(kept) > 0 {
					t.Errorf("%d are kept", len(kept))
				}
			})
		})
	}
}
