package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

func TestStoryOfAKilledNode(t *testing.T) {
	const ms = time.Millisecond
	s := &story{number: 2}
	s.fail(killed, 400*ms)
	granted := redlatch.NodeAnswer{Verdict: redlatch.VoteGranted}
	kept := redlatch.NodeAnswer{Verdict: redlatch.VoteNotAdmitted, Left: 6 * time.Second}

	quiet := func(step string, asked, now time.Duration, a redlatch.NodeAnswer) {
		t.Helper()
		if news := s.hear(asked, now, a); news != "" {
			t.Errorf("%s: %q", step, news)
		}
		if s.out() == nil {
			t.Fatalf("%s: taken for a vote", step)
		}
	}
	quiet("an answer from before it was killed", 390*ms, 410*ms, granted)
	if state, _ := s.state(500 * ms); state != "killed" {
		t.Errorf("state %q, want killed", state)
	}
	s.outages[0].back = 1000 * ms
	quiet("asked before it was back", 990*ms, 1010*ms, granted)
	quiet("no answer", 1020*ms, 1030*ms, redlatch.NodeAnswer{Verdict: redlatch.VoteUnknown})
	quiet("not reached", 1020*ms, 1030*ms, redlatch.NodeAnswer{Verdict: redlatch.VoteNotSent})
	if state, _ := s.state(1050 * ms); state != "back" {
		t.Errorf("state %q, want back", state)
	}
	if news := s.hear(1100*ms, 1110*ms, kept); !strings.Contains(news, "can vote in 6.0 s") {
		t.Errorf("not admitted: %q", news)
	}
	quiet("not admitted, again", 1200*ms, 1210*ms, kept)
	if state, _ := s.state(2210 * ms); state != "not admitted, 5.0 s left" {
		t.Errorf("state %q", state)
	}
	if line := s.summary(3210 * ms); line != "not admitted  killed at 0.4, back empty at 1.0, kept out 4.0 s more" {
		t.Errorf("summary %q", line)
	}
	if news := s.hear(7000*ms, 7050*ms, redlatch.NodeAnswer{Verdict: redlatch.VoteHeld}); !strings.Contains(news, "admitted, 6.0 s after") {
		t.Errorf("admitted: %q", news)
	}
	if s.out() != nil || s.tooSoon() != nil {
		t.Error("it votes, and not too soon")
	}
	if state, _ := s.state(7100 * ms); state != "votes" {
		t.Errorf("state %q, want votes", state)
	}
}

func TestStoryOfAHungNode(t *testing.T) {
	s := &story{number: 4}
	s.fail(hung, time.Second)
	if state, _ := s.state(time.Second); state != "hung" {
		t.Errorf("state %q, want hung", state)
	}
	if line := s.summary(2 * time.Second); line != "out           hung at 1.0 s, not brought back before the end" {
		t.Errorf("summary %q", line)
	}
	s.outages[0].back = 2 * time.Second
	if line := s.summary(2 * time.Second); line != "out           hung at 1.0, back at 2.0 s, no vote seen since" {
		t.Errorf("summary %q", line)
	}
	if news := s.hear(2*time.Second, 2100*time.Millisecond, redlatch.NodeAnswer{Verdict: redlatch.VoteHeld}); news != "votes again" {
		t.Errorf("news %q", news)
	}
	if s.tooSoon() != nil {
		t.Error("a node that kept its memory need not stay out")
	}
	for range 3 {
		s.fail(hung, 3*time.Second)
		s.outages[len(s.outages)-1].back, s.outages[len(s.outages)-1].votes = 4*time.Second, 4*time.Second
	}
	if line := s.summary(9 * time.Second); !strings.HasPrefix(line, "votes         outages before these: 1\n                         hung at 3.0, back at 4.0, voted again at 4.0 s\n") {
		t.Errorf("summary %q", line)
	}
}

// A server of an ensemble has its data when it comes back, and has no quarantine.
func TestStoryOfAServerOfAnEnsemble(t *testing.T) {
	s := &story{number: 2, keeps: true}
	s.fail(killed, time.Second)
	s.outages[0].back = 2 * time.Second
	if news := s.hear(2100*time.Millisecond, 2200*time.Millisecond, redlatch.NodeAnswer{Verdict: redlatch.VoteHeld}); news != "votes again" {
		t.Errorf("%q", news)
	}
	if s.tooSoon() != nil {
		t.Error("it voted too soon")
	}
	if line := s.summary(3 * time.Second); line != "votes         killed at 1.0, back with its data at 2.0, voted again at 2.2 s" {
		t.Errorf("%q", line)
	}
}
