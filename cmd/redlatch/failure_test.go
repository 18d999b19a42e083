package main

import (
	"testing"

	"github.com/redlatch/redlatch"
)

// A quorum that came too late is not said to have been missed by number.
func TestHeadlineOfALateQuorum(t *testing.T) {
	granted := redlatch.NodeAnswer{Verdict: redlatch.VoteGranted}
	late := &redlatch.QuorumError{Op: "lock", Need: 2, Of: 3, Nodes: []redlatch.NodeAnswer{granted, granted, {}}}
	want := "no quorum: 2 of 3 nodes granted it, 2 are needed, but too late, or not under one token"
	if got := headline(late, "lock"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	late.Nodes[0].Verdict = redlatch.VoteUnknown
	if got, want := headline(late, "lock"), "no quorum: 1 of 3 nodes granted it, 2 are needed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A node on which nobody has the lock is free, whichever command asks.
func TestFailureOfALook(t *testing.T) {
	for doing, op := range map[string]string{"show": "query", "watch": "observe"} {
		err := &redlatch.QuorumError{Op: op, Need: 2, Of: 3, Nodes: []redlatch.NodeAnswer{{Node: "a", Verdict: redlatch.VoteNotOurs}}}
		if got, want := (&connection{}).failure(doing, "job", err).details[0], "a: free"; got != want {
			t.Errorf("%s: %s, want %s", doing, got, want)
		}
	}
}
