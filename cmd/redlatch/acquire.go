//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// errInterrupted is why a wait ended that a signal ended.
var errInterrupted = errors.New("interrupted")

// acquire waits for the lock as --wait says. When it returns an outcome, nothing
// of ours is left on a node that can be reached, unless it was interrupted
// twice.
func (r *runCmd) acquire(client *redlatch.Client, sigs signals, out *printer) (*redlatch.Lock, *outcome) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	wait := client.Lock
	if r.Wait != nil {
		if *r.Wait == 0 {
			wait = client.TryLock
		} else {
			timeout, stop := context.WithTimeout(ctx, *r.Wait)
			defer stop()
			ctx = timeout
		}
	}

	type answer struct {
		lock *redlatch.Lock
		err  error
	}
	got := make(chan answer, 1) // room for one: nobody reads it after a second signal
	go func() {
		lock, err := wait(ctx, r.Name, r.options(out)...)
		got <- answer{lock, err}
	}()

	var interrupt os.Signal
	for {
		select {
		case a := <-got:
			switch {
			case interrupt == nil && a.err == nil:
				return a.lock, nil
			case interrupt == nil:
				return nil, r.acquireFailure(a.err)
			case a.err == nil: // granted just before the signal came
				release(a.lock, out)
			}
			return nil, interrupted(interrupt, r.Name)
		case sig := <-sigs:
			switch {
			case !stops(sig):
			case interrupt == nil:
				interrupt = sig
				cancel(errInterrupted)
			default: // twice: not even the clean-up is waited for
				end := interrupted(sig, r.Name)
				end.abrupt = true
				return nil, end
			}
		}
	}
}

func interrupted(sig os.Signal, name string) *outcome {
	return &outcome{code: exitSignal + int(number(sig)), err: fmt.Errorf("%w by %s while waiting for %q", errInterrupted, signalName(sig), name)}
}

// options are the terms on which the lock is asked for.
func (r *runCmd) options(out *printer) []redlatch.Option {
	options := []redlatch.Option{
		redlatch.WithTTL(r.TTL),
		redlatch.WithGuard(r.terms().guard()),
		redlatch.WithMaxHold(r.maxHold()),
		redlatch.WithWaitReport(r.waitReport(out)),
	}
	if r.Label != "" {
		options = append(options, redlatch.WithLabel(r.Label))
	}
	return options
}

// forever is longer than any COMMAND runs.
const forever = 10 * 365 * 24 * time.Hour

// maxHold bounds the renewal. The bound a program needs, against a goroutine
// that forgot its lock, is here the life of COMMAND: the lock of a backup must
// not end after an hour because nobody thought of it. --max-run bounds it.
func (r *runCmd) maxHold() time.Duration {
	if r.MaxRun == 0 {
		return forever
	}
	return r.MaxRun + r.MinHold + r.terms().grace + 2*r.TTL
}

// waitReport says why the wait goes on, when the reason changes.
func (r *runCmd) waitReport(out *printer) func(error) {
	var last string
	return func(err error) {
		quorum, ok := errors.AsType[*redlatch.QuorumError](err)
		if !ok {
			out.detail("waiting for %q: %v", r.Name, err)
			return
		}
		reason := reasonOf(quorum)
		if reason == last {
			return
		}
		last = reason
		if errors.Is(err, redlatch.ErrHeld) {
			out.detail("waiting for %q: %s", r.Name, holderText(quorum))
			return
		}
		out.say("waiting for %q: %s", r.Name, headline(quorum))
		for _, line := range answers(quorum) {
			out.say("  %s", line)
		}
		for _, hint := range r.hints(quorum) {
			out.say("hint: %s", hint)
		}
	}
}

// reasonOf is equal for reports that tell a person nothing new.
func reasonOf(quorum *redlatch.QuorumError) string {
	var reason strings.Builder
	for _, node := range quorum.Nodes {
		fmt.Fprintln(&reason, node.Node, node.Verdict, node.Holder.ID)
	}
	return reason.String()
}

// acquireFailure turns the library's error into the exit code and the words.
func (r *runCmd) acquireFailure(err error) *outcome {
	end := &outcome{code: exitInternal, err: fmt.Errorf("cannot lock %q: %w", r.Name, err)}
	quorum, _ := errors.AsType[*redlatch.QuorumError](err)
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		end.code = exitUsage
	case errors.Is(err, redlatch.ErrRefused):
		end.code = exitRefused
	case errors.Is(err, redlatch.ErrHeld):
		end.code = r.ConflictExitCode
		if r.Quiet {
			end.err = nil
		} else if quorum != nil {
			end.err = fmt.Errorf("%q is held by another: %s", r.Name, holderText(quorum))
		}
		return end
	case errors.Is(err, redlatch.ErrNoQuorum), errors.Is(err, redlatch.ErrNotAdmitted):
		end.code = exitNoQuorum
	}
	if quorum != nil {
		end.err = fmt.Errorf("cannot lock %q: %s", r.Name, headline(quorum))
		end.details = answers(quorum)
		end.hints = r.hints(quorum)
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
	return fmt.Sprintf("%s: %d of %d nodes granted it, %d are needed", what, count(redlatch.Granted), quorum.Of, quorum.Need)
}

// hints are what an operator can do about nodes that do not vote.
func (r *runCmd) hints(quorum *redlatch.QuorumError) []string {
	var hints []string
	for _, node := range quorum.Nodes {
		if node.Verdict == redlatch.NotAdmitted {
			hints = append(hints, fmt.Sprintf("if no lock was held on %s before it started: %s", node.Node, r.admitCommand(node.Node)))
		}
	}
	slices.Sort(hints)
	return slices.Compact(hints)
}

// holderText says who holds the lock, since when and for how long still.
func holderText(quorum *redlatch.QuorumError) string {
	holder, left, ok := quorum.Holder()
	if !ok {
		return "no node says who"
	}
	who := holder.Label
	if who == "" {
		who = "a client that gives no name (" + holder.ID + ")"
	}
	text := who
	if !holder.Since.IsZero() {
		text += fmt.Sprintf(" since %s (%s)", holder.Since.Local().Format(time.DateTime), short(time.Since(holder.Since)))
	}
	if left < 0 {
		return text + ", for ever: its key has no expiry"
	}
	return fmt.Sprintf("%s, for %s still unless it is renewed", text, short(left))
}
