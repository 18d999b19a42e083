package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// fault is what is done to a node.
type fault uint8

const (
	killed fault = iota
	hung
)

func (f fault) String() string { return [...]string{"killed", "hung"}[f] }

// outage is one fault and the time after it until the node votes again. Times
// are since the race began; 0 means not yet.
type outage struct {
	fault fault
	began time.Duration
	// due is when the node is to be brought back. returning is set once that has begun.
	due       time.Duration
	returning bool
	// back is when the process ran again. votes is when the node was seen to vote, by an answer
	// to a request that was sent after back.
	back, votes time.Duration
}

// story is what happened to one node.
type story struct {
	number  int
	address string
	outages []outage
	// keeps is set if the node still has its data when it comes back, and so needs no quarantine.
	keeps bool

	// until is when the node can be admitted, according to its latest answer in the present
	// outage, or 0 if it has not said so in this outage.
	until time.Duration
}

// fail begins an outage.
func (s *story) fail(kind fault, now time.Duration) {
	s.outages = append(s.outages, outage{fault: kind, began: now})
	s.until = 0
}

// out returns the outage that is not over, or nil if the node votes.
func (s *story) out() *outage {
	if n := len(s.outages); n > 0 && s.outages[n-1].votes == 0 {
		return &s.outages[n-1]
	}
	return nil
}

// hear updates the story with the node's answer to a request that was sent at asked. It returns
// the news for the viewer, or "" if there is none.
func (s *story) hear(asked, now time.Duration, a redlatch.NodeAnswer) string {
	o := s.out()
	if o == nil || o.back == 0 || asked < o.back {
		// The node is not out, or is not back yet, or was asked before it was back.
		return ""
	}
	switch a.Verdict {
	case redlatch.VoteGranted, redlatch.VoteHeld:
		o.votes = now
		if o.fault == hung || s.keeps {
			return "votes again"
		}
		return fmt.Sprintf("admitted, %s after it came back: votes again", span(o.votes-o.back))
	case redlatch.VoteNotAdmitted:
		first := s.until == 0
		s.until = now + max(a.Left, time.Millisecond)
		if first {
			return fmt.Sprintf("not admitted, it may have forgotten locks: can vote in %s", span(a.Left))
		}
	}
	return ""
}

// brings says in words whether the node has its data when it comes back.
func (s *story) brings() string {
	if s.keeps {
		return "with its data"
	}
	return "empty"
}

// state returns what the live view says of the node.
func (s *story) state(now time.Duration) (string, tone) {
	o := s.out()
	switch {
	case o == nil:
		return "votes", good
	case o.back == 0 && o.fault == killed:
		return "killed", bad
	case o.back == 0:
		return "hung", bad
	case s.until != 0:
		return fmt.Sprintf("not admitted, %s left", clockTime(max(0, s.until-now))), fair
	}
	return "back", fair
}

// tooSoon returns the outage after which the node, which came back empty, voted before the TTL of the
// locks that it had forgotten was over. It returns nil if there is none.
func (s *story) tooSoon() *outage {
	for i, o := range s.outages {
		if o.fault == killed && !s.keeps && o.votes != 0 && o.votes-o.back < ttl {
			return &s.outages[i]
		}
	}
	return nil
}

// margin is the line break and the indentation before each further line of a node's summary.
const margin = "\n                         "

// summary returns the node's part of the demo's summary, with a line for each of the last outages.
func (s *story) summary(end time.Duration) string {
	const most = 3
	if len(s.outages) == 0 {
		return "votes         never touched"
	}
	now := "votes"
	switch o := s.out(); {
	case o == nil:
	case s.until != 0:
		now = "not admitted"
	default:
		now = "out"
	}
	var lines []string
	if n := len(s.outages) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("outages before these: %d", n))
	}
	for _, o := range s.outages[max(0, len(s.outages)-most):] {
		lines = append(lines, o.summary(s.until-end, s.brings()))
	}
	return fmt.Sprintf("%-12s  %s", now, strings.Join(lines, margin))
}

// summary returns the line of the outage. left is how long the node's quarantine still takes.
func (o outage) summary(left time.Duration, brings string) string {
	text := fmt.Sprintf("%s at %.1f", o.fault, o.began.Seconds())
	if o.back == 0 {
		return text + " s, not brought back before the end"
	}
	if o.fault == killed {
		text += fmt.Sprintf(", back %s at %.1f", brings, o.back.Seconds())
	} else {
		text += fmt.Sprintf(", back at %.1f", o.back.Seconds())
	}
	switch {
	case o.votes != 0 && o.fault == killed && brings == "empty":
		return text + ", admitted at " + clockTime(o.votes)
	case o.votes != 0:
		return text + ", voted again at " + clockTime(o.votes)
	case o.fault == killed && left > 0:
		return text + ", kept out " + clockTime(left) + " more"
	}
	return text + " s, no vote seen since"
}
