package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/printable"
)

// failure turns the library's error into the exit code and the words. doing is
// what could not be done to the lock.
func (c *connection) failure(doing, name string, err error) *outcome {
	return c.failed(fmt.Sprintf("%s %q", doing, name), err)
}

// failed is failure, of what could not be done.
func (c *connection) failed(what string, err error) *outcome {
	end := &outcome{code: exitInternal, err: fmt.Errorf("cannot %s: %w", what, err)}
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		end.code = exitUsage
	case errors.Is(err, redlatch.ErrRefused):
		end.code = exitRefused
	case errors.Is(err, redlatch.ErrNoQuorum), errors.Is(err, redlatch.ErrNotAdmitted):
		end.code = exitNoQuorum
	}
	if quorum, ok := errors.AsType[*redlatch.QuorumError](err); ok {
		end.err = fmt.Errorf("cannot %s: %s", what, headline(quorum))
		end.details = answers(quorum.Nodes)
		end.hints = c.hints(quorum)
	}
	return end
}

// headline sums the answers up in one line.
func headline(quorum *redlatch.QuorumError) string {
	count := func(verdict redlatch.Verdict) int {
		n := 0
		for _, node := range quorum.Nodes {
			if node.Verdict == verdict {
				n++
			}
		}
		return n
	}
	what := "no quorum"
	switch {
	case errors.Is(quorum, redlatch.ErrRefused):
		what = "refused"
	case errors.Is(quorum, redlatch.ErrNotAdmitted):
		what = "too few nodes are admitted"
	}
	return fmt.Sprintf("%s: %d of %d nodes granted it, %d are needed", what, count(redlatch.VoteGranted), quorum.Of, quorum.Need)
}

// hints are what an operator can do about nodes that do not vote, or not for these settings.
func (c *connection) hints(quorum *redlatch.QuorumError) []string {
	var hints []string
	if slices.ContainsFunc(quorum.Nodes, func(node redlatch.NodeAnswer) bool { return disagrees(node.Err) }) {
		hints = append(hints, c.setHint())
	}
	switch out := notAdmitted(quorum); len(out) {
	case 0:
	case 1:
		hints = append(hints, fmt.Sprintf("if no lock was held on %s before it started: %s", out[0].Node, c.admitCommand(out[0].Node)))
	default:
		hints = append(hints, "if no lock was held on these nodes before they started: "+c.admitAllCommand())
	}
	return hints
}

// notAdmitted are the nodes that do not vote yet.
func notAdmitted(quorum *redlatch.QuorumError) []redlatch.NodeAnswer {
	var out []redlatch.NodeAnswer
	for _, node := range quorum.Nodes {
		if node.Verdict == redlatch.VoteNotAdmitted {
			out = append(out, node)
		}
	}
	return out
}

// holderText says who holds the lock, since when and for how long still.
func (c *connection) holderText(quorum *redlatch.QuorumError) string {
	holder, left, ok := quorum.Holder()
	if !ok {
		return "no node says who"
	}
	return c.holdingText(holder, left)
}

func (c *connection) holdingText(holder redlatch.Holder, left time.Duration) string {
	who := printable.Text(holder.Label)
	if holder.Shared {
		who = "readers"
	} else if who == "" {
		who = "a client that gives no name (" + printable.Text(holder.ID) + ")"
	}
	text := who
	if !holder.Since.IsZero() {
		text += fmt.Sprintf(" since %s (%s)", holder.Since.Local().Format(time.DateTime), short(time.Since(holder.Since)))
	}
	if left < 0 {
		return text + ", for ever: its key has no expiry"
	}
	if c.ensemble != nil {
		return fmt.Sprintf("%s, who waits has it within %s unless it is renewed", text, short(left))
	}
	return fmt.Sprintf("%s, %s unless it is renewed", text, c.forHowLong(left))
}
