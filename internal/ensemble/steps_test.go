package ensemble

import (
	"errors"
	"slices"
	"testing"

	"github.com/redlatch/redlatch/internal/vote"
)

// A removal goes on until it is answered, and remembers that it may have been executed before.
func TestRemoval(t *testing.T) {
	t.Parallel()
	errClosed := errors.New("closed")
	const open = 100
	for name, c := range map[string]struct {
		verdicts []vote.Verdict
		rests    int // until the life of the client ends
		doubts   []bool
		ended    bool
	}{
		"at once":              {[]vote.Verdict{vote.Granted}, open, []bool{false}, true},
		"not there":            {[]vote.Verdict{vote.NotOurs}, open, []bool{false}, true},
		"refused":              {[]vote.Verdict{vote.Refused}, open, []bool{false}, true},
		"not executed":         {[]vote.Verdict{vote.NotSent, vote.Unavailable, vote.Granted}, open, []bool{false, false, false}, true},
		"perhaps executed":     {[]vote.Verdict{vote.Unknown, vote.Unavailable, vote.NotSent, vote.NotOurs}, open, []bool{false, true, true, true}, true},
		"its life ends":        {[]vote.Verdict{vote.Unknown, vote.Unavailable}, 1, []bool{false, true}, false},
		"the client is closed": {nil, 0, nil, false},
	} {
		var doubts []bool
		ended := false
		r := Removal{
			Run: func(f func()) bool {
				if c.verdicts != nil {
					f()
				}
				return c.verdicts != nil
			},
			Rest: func() bool { c.rests--; return c.rests >= 0 },
			Once: func(doubtful bool) vote.Answer {
				doubts = append(doubts, doubtful)
				return vote.Answer{Verdict: c.verdicts[len(doubts)-1]}
			},
			Ended: func() { ended = true }, Closed: errClosed,
		}
		want := vote.Answer{Verdict: vote.NotSent, Err: errClosed}
		if n := len(c.verdicts); n > 0 {
			want = vote.Answer{Verdict: c.verdicts[n-1]}
		}
		if a := <-r.Start(); a.Verdict != want.Verdict || a.Err != want.Err || !slices.Equal(doubts, c.doubts) || ended != c.ended {
			t.Errorf("%s: %+v, doubtful %v, ended: %t", name, a, doubts, ended)
		}
	}
}

// What came before anything was asked for was not executed.
func TestNotAsked(t *testing.T) {
	t.Parallel()
	for before, want := range map[vote.Verdict]vote.Verdict{vote.Unknown: vote.Unavailable, vote.NotSent: vote.NotSent, vote.Refused: vote.Refused} {
		if a := NotAsked(vote.Answer{Verdict: before}); a.Verdict != want {
			t.Errorf("%v: %v", before, a.Verdict)
		}
	}
}

// A key is watched once until the notice has come.
func TestWatches(t *testing.T) {
	t.Parallel()
	var w Watches
	begun := []bool{w.Begin("a"), w.Begin("a"), w.Begin("b"), w.Begin("a")}
	w.Over("a")
	if begun = append(begun, w.Begin("a"), w.Begin("b")); !slices.Equal(begun, []bool{true, false, true, false, true, false}) {
		t.Errorf("%v", begun)
	}
}
