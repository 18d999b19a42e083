package node

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// A Cluster's master that gets slots one after the other keeps each out until an end of its own. Callers look at
// these slots in turns. What is logged is each later end, once.
func TestQuarantineOfSeveralSlots(t *testing.T) {
	t.Parallel()
	q, start := new(quarantines), time.Now()
	news := 0
	for turn := range 100 {
		for slot := range 3 {
			until := start.Add(time.Minute + time.Duration(slot)*2*sameEnd + time.Duration(turn)*time.Millisecond)
			if q.begin("run", until) {
				q.told("run")
				news++
			}
		}
	}
	if news != 3 {
		t.Errorf("told %d times of 3 ends", news)
	}
	if !q.last() {
		t.Error("it is not known to be kept out")
	}
	if len(q.end("run")) != 1 || len(q.end("run")) != 0 {
		t.Error("its vote is not told once")
	}
}

// A node whose quarantine was told of is said to vote after its first answer to a caller that asks for a lock or a permit, whether or
// not that is a grant.
func TestVoteAfterAQuarantine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		number := func(n int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: n} }
		slot := driver.Reply{Kind: driver.Array, Array: []driver.Reply{number(7), number(1), number(0)}}
		held := driver.Reply{Kind: driver.Array, Array: []driver.Reply{{Kind: driver.Text, Text: "theirs"}, number(5)}}
		request := vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7, Slots: 2}
		acquire := func(n *Node) vote.Answer { return n.Acquire(t.Context(), request) }
		choose := func(n *Node) vote.Answer { return n.Choose(t.Context(), request) }
		for name, c := range map[string]struct {
			reply driver.Reply
			step  func(*Node) vote.Answer
		}{
			"granted":            {number(7), acquire},
			"granted in a batch": {number(0), func(n *Node) vote.Answer { return Batch(n, -1).Acquire(t.Context(), request) }},
			"held":               {held, acquire},
			"a slot is granted":  {slot, choose},
			"all slots are held": {held, choose},
		} {
			votes := 0
			n := New(&renewed{scripted: scripted{answer: released}, reply: c.reply}, Options{
				Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
				ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler), Admitted: func(string) { votes++ },
			})
			run := strings.Repeat("r", 40)
			n.options.quarantines.begin(run, time.Now().Add(time.Minute))
			n.options.quarantines.told(run)
			for range 2 {
				if a := c.step(n); a.Verdict != vote.Granted && a.Verdict != vote.Held || votes != 1 {
					t.Errorf("%s: %v, %v; told %d times", name, a.Verdict, a.Err, votes)
				}
			}
			n.Close()
		}
	})
}

// After MaxTTL was made smaller a node is kept out for longer than by the present one. It is not said to be out since a time to come.
func TestQuarantineLongerThanTheAgreements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		a := admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second}
		n := New(new(moving), Options{Name: "n", Census: NewCensus(a.Nodes), Agreement: a, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer n.Close()
		n.noteWait(&admission.WaitError{Reason: "it was reset", Left: time.Minute, RunID: "r"})
		_, since, _ := strings.Cut(log.String(), " since=")
		since, _, _ = strings.Cut(since, " ")
		if at, err := time.Parse(time.RFC3339Nano, since); err != nil || at.After(time.Now()) {
			t.Errorf("at %v it is out since %v, %v: %s", time.Now(), at, err, log.String())
		}
	})
}
