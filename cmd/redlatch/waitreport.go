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

// sayAgain is after how long a reason is told again, if there was another meanwhile: on a
// busy machine they change with who answered in time.
const sayAgain = time.Minute

// waitReport says why the wait goes on: a line, and another when the reason changes.
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

// sayWhy says what is waited for. That another holds the lock is what a wait is for.
func (r *acquisition) sayWhy(quorum *redlatch.QuorumError, out *printer) {
	switch {
	case errors.Is(quorum, redlatch.ErrHeld):
		out.detail("waiting for %s: %s", r.quoted(), r.heldText(quorum))
		return
	case errors.Is(quorum, redlatch.ErrNotAdmitted) && term.IsTerminal(int(os.Stderr.Fd())):
		out.say("waiting for %s: %s", r.quoted(), quarantineText(quorum))
		out.say("  a server that has just started does not vote until every lock that it may have granted before has run out: for --max-ttl and %s", outOfService)
		for _, hint := range r.hints(quorum) {
			out.say("hint: to skip the wait, %s", hint)
		}
	case errors.Is(quorum, redlatch.ErrNotAdmitted):
		out.say("waiting for %s: %s; %s", r.quoted(), quarantineText(quorum), strings.Join(r.hints(quorum), "; "))
	default:
		var why strings.Builder
		why.WriteString(headline(quorum))
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

// quarantineText says how many nodes do not vote yet, and for how long.
func quarantineText(quorum *redlatch.QuorumError) string {
	nodes := notAdmitted(quorum)
	text := fmt.Sprintf("too few nodes are admitted: %d of %d may have forgotten locks that they granted before they started", len(nodes), quorum.Of)
	left := time.Duration(0)
	for _, node := range nodes {
		left = max(left, node.Left)
	}
	if left > 0 {
		text += fmt.Sprintf(", and vote in %s", short(left))
	}
	return text
}

// reasonOf is equal for reports that tell a person nothing new.
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
