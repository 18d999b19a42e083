package observe

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// An earlier holder is known by its smaller token for as long as its key can be there; after that, tokens have begun anew.
func TestLatest(t *testing.T) {
	t.Parallel()
	const maxTTL = 10 * time.Second
	start, latest := clock.System.Now(), Latest{}
	for _, c := range []struct {
		what  string
		id    string
		token uint64
		at    time.Duration
		after bool
	}{
		{"the first", "a", 5, 0, false},
		{"the same on a node that lacks the last token", "a", 3, time.Second, false},
		{"an earlier one, by the token that the latest is known to have", "b", 4, 2 * time.Second, true},
		{"one whose token is not larger", "c", 5, 3 * time.Second, false},
		{"an earlier one as long as its key may be there", "b", 4, 3*time.Second + maxTTL, true},
		{"another when no key can be there", "b", 2, 4*time.Second + maxTTL, false},
		{"its successor, by a token that has begun anew", "d", 3, 5*time.Second + maxTTL, false},
		{"an earlier one than that", "b", 2, 6*time.Second + maxTTL, true},
	} {
		if after := latest.After(c.id, c.token, start.Add(c.at), maxTTL); after != c.after {
			t.Errorf("%s: %t", c.what, after)
		}
	}
	seen := Latest{}
	seen.After("a", 5, start, maxTTL)
	if seen.SeenAt(start.Add(time.Hour)); !seen.After("b", 4, start.Add(time.Hour+maxTTL), maxTTL) || !seen.Is("a") {
		t.Error("a holder that was seen an hour later counts from then on")
	}
}

// The token of a holder is the smallest counter of the nodes that it has: one of them may be ahead of its own token.
func TestHolding(t *testing.T) {
	t.Parallel()
	held := func(id string, counter uint64) vote.Answer {
		return vote.Answer{Verdict: vote.Held, Holder: id, Counter: counter}
	}
	none, missing := vote.Answer{Verdict: vote.NotOurs}, vote.Answer{}
	for name, c := range map[string]struct {
		answers []vote.Answer
		id      string
		token   uint64
		decided bool
	}{
		"the smallest":         {[]vote.Answer{held("a", 7), held("a", 5), held("a", 6)}, "a", 5, true},
		"a counter is unknown": {[]vote.Answer{held("a", 0), held("a", 6), missing}, "a", 6, true},
		"and the last":         {[]vote.Answer{held("a", 6), held("a", 0), missing}, "a", 6, true},
		"another's counter":    {[]vote.Answer{held("b", 1), held("a", 6), held("a", 7)}, "a", 6, true},
		"none":                 {[]vote.Answer{held("a", 6), none, none}, "", 0, true},
		"not decided":          {[]vote.Answer{held("a", 6), none, missing}, "", 0, false},
		"nothing can change":   {[]vote.Answer{held("a", 6), held("b", 7), none, none, missing}, "", 0, true},
	} {
		id, token, decided := Holding(c.answers)
		if id != c.id || token != c.token || decided != c.decided {
			t.Errorf("%s: %q, %d, %t", name, id, token, decided)
		}
	}
}

// Observers that have stopped leave nothing behind, and the others are told.
func TestObserversStop(t *testing.T) {
	t.Parallel()
	var o Observers
	_, stop := o.Add("a")
	changed, stopOther := o.Add("a")
	stop()
	o.Changed("b")
	if len(changed) != 0 {
		t.Error("told of another key")
	}
	o.Changed("a")
	o.Changed("")
	if len(changed) != 1 {
		t.Error("not told")
	}
	stopOther()
	if len(o.of) != 0 || o.some.Load() != 0 {
		t.Errorf("left: %v, %d", o.of, o.some.Load())
	}
}
