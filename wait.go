package redlatch

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// Listens implements waitqueue.Caller.
func (c *call) Listens() bool { return c.settings.report != nil || c.client.logs(slog.LevelInfo) }

// Behind implements waitqueue.Caller.
func (c *call) Behind(holder *waitqueue.Holder, failure error) {
	if holder == nil {
		other, _ := failure.(*QuorumError)
		c.failure = c.mine(other)
		return
	}
	before := holder.Caller.(*call)
	votes := c.client.answers(nil)
	left := max(0, time.Until(before.lock.lease.KeptUntil().Mono)) // less than 0 would mean for ever
	for i := range votes {
		votes[i].Verdict, votes[i].Holder, votes[i].Left = VoteHeld, parseHolder(before.lock.lease.ID()), left
	}
	c.failure = c.named(newQuorumError("lock", c.wanted(), votes))
	c.failure.here, c.failure.site = true, before.site
}

// mine returns the failure of a call for the same name as one of this call. The other call may be for further
// names, which are nothing to this one.
func (c *call) mine(other *QuorumError) *QuorumError {
	if other == nil {
		return nil
	}
	e := *other
	e.Nodes = slices.Clone(other.Nodes)
	if e.kind != ErrHeld { // else it is the one that both wait for
		e.Name = c.name
	}
	for i := range e.Nodes {
		a := &e.Nodes[i]
		if a.Name != "" && a.Name != c.wanted() {
			*a = NodeAnswer{Node: a.Node}
		}
		a.Name = ""
	}
	return c.named(&e)
}

// Queued implements waitqueue.Caller.
func (c *call) Queued(p vote.Position) error {
	if f := c.failure; p.Reserved() && f != nil && f.kind == ErrHeld && !f.here {
		return f // who had the lock says more than that it is kept for another who waits
	}
	votes := make([]NodeAnswer, 0, len(c.client.nodes))
	if c.failure != nil {
		votes = slices.Clone(c.failure.Nodes)
	} else {
		votes = append(votes, c.client.answers(nil)...)
		for i := range votes {
			votes[i].Verdict = VoteNotSent
		}
	}
	at, holder := p.Ticket.Node, parseHolder(p.Holder)
	for i := range votes {
		// What another node said of this lock is older than the arbiter's answer.
		switch v := &votes[i]; {
		case v.Verdict != VoteHeld || v.Name != "" && v.Name != c.wanted():
		case v.Holder.ID == holder.ID:
			v.Left = p.Left
		default:
			*v = NodeAnswer{Node: v.Node}
		}
	}
	votes[at].Verdict, votes[at].Holder, votes[at].Left = VoteHeld, holder, p.Left
	votes[at].Name = "" // it may have been another of several
	c.failure = c.named(&QuorumError{Op: "lock", Name: c.wanted(), Need: quorum.Majority(len(votes)), Of: len(votes), Nodes: votes, kind: ErrHeld})
	return c.failure
}

// Report tells the log and the function of WithWaitReport why the call waits, about once a second.
func (c *call) Report() {
	if c.failure == nil {
		return
	}
	c.logWait()
	if c.settings.report != nil && time.Since(c.reported) > time.Second {
		c.reported = time.Now()
		c.settings.report(c.failure)
	}
}

const (
	// quietWait is how long a Lock waits before it tells the log why.
	quietWait = time.Second
	// logAgain is after how long the log is told a reason again if there was another one meanwhile.
	// On a busy machine the reasons change with which node answered in time.
	logAgain = time.Minute
)

// waitLog is what the log was told of a call that waits.
type waitLog struct {
	since time.Time
	// last is the reason that the log was told last. told is when it was told each reason.
	last error
	told map[error]time.Time
}

// logWait tells the log why the call waits, once that takes long, and again when the reason is
// another. Another holder is no other reason: the lock passes from one to the next.
func (c *call) logWait() {
	if !c.client.logs(slog.LevelInfo) {
		return
	}
	now := time.Now()
	if c.waited == nil {
		c.waited = &waitLog{since: now, told: make(map[error]time.Time)}
	}
	w, reason := c.waited, c.failure.kind
	if now.Sub(w.since) < quietWait || reason == w.last {
		return
	}
	w.last = reason
	if at, told := w.told[reason]; told && now.Sub(at) < logAgain {
		return
	}
	w.told[reason] = now
	c.client.config.Logger.Info("waiting for the lock", "name", c.name, "for", now.Sub(w.since).Round(time.Millisecond), "reason", c.failure)
}

// thisPackage is what the names of this package's functions begin with.
const thisPackage = "github.com/redlatch/redlatch."

// callSite returns where the program called the function of this package that has led here, as
// file:line.
func callSite() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if frame.Function != "" && !strings.HasPrefix(frame.Function, thisPackage) {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		if !more {
			return ""
		}
	}
}
