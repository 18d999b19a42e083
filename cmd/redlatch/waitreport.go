//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/redlatch/redlatch"
)

// sayAgain is the time after which a reason is reported again, if another one was reported
// meanwhile. On a busy machine the reason changes with the nodes that answer in time.
const sayAgain = time.Minute

// waitReport says in a line why the wait goes on, and in another line when the reason changes.
func (r *acquisition) waitReport(out *printer) func(error) {
	var last string
	told := make(map[string]time.Time)
	return func(err error) {
		quorum, ok := errors.AsType[*redlatch.QuorumError](err)
		if !ok {
			out.detail("waiting for %s: %v", r.quoted(), err)
			return
		}
		reason := reasonOf(quorum)
		if reason == last {
			return
		}
		last = reason
		if at, again := told[reason]; again && time.Since(at) < sayAgain {
			return
		}
		told[reason] = time.Now()
		r.sayWhy(quorum, out)
	}
}

// sayWhy says what the command waits for. That another client holds the lock is the normal
// reason, and only --verbose reports it.
func (r *acquisition) sayWhy(quorum *redlatch.QuorumError, out *printer) {
	switch {
	case errors.Is(quorum, redlatch.ErrHeld):
		out.detail("waiting for %s: %s", r.quoted(), r.heldText(quorum))
		return
	case errors.Is(quorum, redlatch.ErrNotAdmitted) && term.IsTerminal(int(os.Stderr.Fd())):
		out.say("waiting for %s: %s", r.quoted(), quarantineText(quorum))
		out.say("  a server that has just started does not vote until every lock that it may have granted before has run out, that is for --max-ttl plus %s", outOfService)
		for _, hint := range r.hints(quorum) {
			out.say("hint: to skip the wait, %s", hint)
		}
	case errors.Is(quorum, redlatch.ErrNotAdmitted):
		out.say("waiting for %s: %s; %s", r.quoted(), quarantineText(quorum), strings.Join(r.hints(quorum), "; "))
	default:
		var why strings.Builder
		why.WriteString(headline(quorum, "lock"))
		for i, line := range answers(quorum.Nodes) {
			if quorum.Nodes[i].Err != nil {
				why.WriteString("; " + line)
			}
		}
		out.say("waiting for %s: %s", r.quoted(), why.String())
	}
	for _, line := range answers(quorum.Nodes) {
		out.detail("  %s", line)
	}
}

// quarantineText says how many nodes do not vote yet, and how long that lasts.
func quarantineText(quorum *redlatch.QuorumError) string {
	nodes := notAdmitted(quorum)
	text := fmt.Sprintf("too few nodes are admitted: %d of %d may have forgotten locks that they granted", len(nodes), quorum.Of)
	left := time.Duration(0)
	for _, node := range nodes {
		left = max(left, node.Left)
	}
	if left > 0 {
		text += fmt.Sprintf("; they vote in %s", short(left))
	}
	return text
}

// reasonOf returns the same text for reports that tell a person the same.
func reasonOf(quorum *redlatch.QuorumError) string {
	switch holder, _, _ := quorum.Holder(); {
	case errors.Is(quorum, redlatch.ErrHeld):
		return "held " + quorum.Name + " " + holder.ID
	case errors.Is(quorum, redlatch.ErrNotAdmitted):
		return "not admitted"
	case errors.Is(quorum, redlatch.ErrRefused):
		return "refused"
	}
	return "no quorum"
}
