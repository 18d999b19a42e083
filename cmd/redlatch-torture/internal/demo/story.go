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

// outage is one fault from its beginning until the node votes again. The times
// are since the race began; 0 is not yet.
type outage struct {
	fault fault
	began time.Duration
	// due is when it is to be brought back; returning, that this is being done.
	due       time.Duration
	returning bool
	// back: the process runs again, empty after a kill. votes: a vote that was
	// asked for after that was seen.
	back, votes time.Duration
}

// story is what happened to one node.
type story struct {
	number  int
	address string
	outages []outage
	// keeps: it has its data when it comes back, and votes as soon as it can.
	keeps bool

	// until is when the node can be admitted, by its latest answer in the present
	// outage; 0 while it has not said so.
	until time.Duration
}

// fail begins an outage.
func (s *story) fail(kind fault, now time.Duration) {
	s.outages = append(s.outages, outage{fault: kind, began: now})
	s.until = 0
}

// out returns the outage that is not over, or nil.
func (s *story) out() *outage {
	if n := len(s.outages); n > 0 && s.outages[n-1].votes == 0 {
		return &s.outages[n-1]
	}
	return nil
}

// hear takes in the node's answer to what was asked at the time asked, and says
// what is new in it, "" if nothing.
func (s *story) hear(asked, now time.Duration, a redlatch.NodeAnswer) string {
	o := s.out()
	if o == nil || o.back == 0 || asked < o.back {
		// It votes as always, or it is out, or it is what it said before that.
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

// brings is what it has when it comes back.
func (s *story) brings() string {
	if s.keeps {
		return "with its data"
	}
	return "empty"
}

// state is what the live view says of the node.
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

// tooSoon returns the outage after which the node voted though it may have
// forgotten locks that ran on, or nil.
func (s *story) tooSoon() *outage {
	for i, o := range s.outages {
		if o.fault == killed && !s.keeps && o.votes != 0 && o.votes-o.back < ttl {
			return &s.outages[i]
		}
	}
	return nil
}

// margin is what a further line of a summary begins with.
const margin = "\n                         "

// summary is the node's part of the summary in the end: a line an outage.
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

// summary says how it went; left is how long a node that is kept out stays so.
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
