//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// errInterrupted is why a wait ended that a signal ended.
var errInterrupted = errors.New("interrupted")

// acquisition has the flags of every command that acquires a lock.
type acquisition struct {
	connection

	Wait             *time.Duration `placeholder:"D" help:"How long to wait for the lock; 0 makes one try. Defaults to waiting for ever."`
	ConflictExitCode int            `name:"conflict-exit-code" short:"E" default:"75" placeholder:"N" help:"Exit code for a lock that is held by another. Defaults to 75."`
	Label            string         `placeholder:"TEXT" help:"Who we say we are to those who wait. Defaults to host:pid."`
	Quiet            bool           `short:"q" xor:"verbosity" help:"Say nothing of waiting, nor that the lock is held by another. Other errors are told."`
	Verbose          bool           `short:"v" xor:"verbosity" help:"Say who is waited for, and what the library does."`

	Name string `arg:"" help:"The lock's name."`
}

func (r *acquisition) level() level {
	switch {
	case r.Quiet:
		return quiet
	case r.Verbose:
		return verbose
	}
	return normal
}

// check refuses flags that cannot work, before anything is sent.
func (r *acquisition) check(ttl time.Duration) error {
	switch {
	case ttl > r.MaxTTL:
		return usage("raise --max-ttl, for all clients, with redlatch deployment set", "--ttl %v is more than --max-ttl %v", ttl, r.MaxTTL)
	case ttl < time.Millisecond:
		return usage("a few seconds are usual", "--ttl %v is less than 1ms", ttl)
	case r.Wait != nil && *r.Wait < 0:
		return usage("0 makes one try; without --wait it waits for ever", "--wait %v is negative", *r.Wait)
	case r.ConflictExitCode < 0 || r.ConflictExitCode > 255:
		return usage("exit codes are 0 to 255", "--conflict-exit-code %d is no exit code", r.ConflictExitCode)
	}
	return nil
}

// configure returns the library's settings for a lock of that TTL, and what
// those inside of it are told. It refuses a lock held by a redlatch run around
// this one.
func (r *acquisition) configure(ttl time.Duration, out *printer) (redlatch.Config, held, error) {
	cfg, err := r.config()
	if err != nil {
		return cfg, held{}, err
	}
	ours := ourHold(r.Name, cfg)
	if err := refuseNested(ours); err != nil {
		return cfg, ours, err
	}
	cfg.TTL = ttl
	if r.NodeTimeout == 0 {
		cfg.NodeTimeout = min(cfg.NodeTimeout, max(ttl/20, 50*time.Millisecond))
	}
	cfg.Logger = out.logger()
	return cfg, ours, nil
}

// acquire waits for the lock as --wait says. When it returns an outcome, nothing
// of ours is left on a node that can be reached, unless it was interrupted
// twice.
func (r *acquisition) acquire(client *redlatch.Client, sigs signals, out *printer, options []redlatch.Option) (*redlatch.Lock, *outcome) {
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
		lock, err := wait(ctx, r.Name, options...)
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

// waitReport says why the wait goes on, when the reason changes.
func (r *acquisition) waitReport(out *printer) func(error) {
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
		for _, line := range answers(quorum.Nodes) {
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
func (r *acquisition) acquireFailure(err error) *outcome {
	if !errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrInvalid) || errors.Is(err, redlatch.ErrRefused) {
		return r.failure("lock", r.Name, err)
	}
	end := &outcome{code: r.ConflictExitCode, err: fmt.Errorf("cannot lock %q: %w", r.Name, err)}
	if r.Quiet {
		end.err = nil
	} else if quorum, ok := errors.AsType[*redlatch.QuorumError](err); ok {
		end.err = fmt.Errorf("%q is held by another: %s", r.Name, holderText(quorum))
	}
	return end
}
