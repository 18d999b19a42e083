//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// errInterrupted is the error of a wait that a signal ended.
var errInterrupted = errors.New("interrupted")

// acquisition has the flags of the commands that acquire a lock.
type acquisition struct {
	connection

	NoWait           bool
	Wait             *time.Duration
	ConflictExitCode int
	Label            string
	Quiet            bool
	Verbose          bool

	Name string
	// Also are further names, which are locked together with Name, all or none.
	Also []string
	// Permits is the number of permits that Name has, if one of them is to be taken
	// in place of the lock.
	Permits *int

	// until is the end of --wait.
	until time.Time
}

// addTo adds the flags to a command.
func (r *acquisition) addTo(flags *pflag.FlagSet) {
	r.connection.addTo(flags)
	commandline.Bool(flags, &r.NoWait, "no-wait", "n", "Try once, as with --wait 0.")
	flags.VarP(commandline.Optional(&r.Wait, commandline.Duration), "wait", "w", "How long to wait for the lock, the time to connect to the nodes included; 0 means to try once, which takes some seconds where nodes hang. Defaults to waiting for ever.")
	r.ConflictExitCode = exitHeld
	flags.VarP(commandline.Int(&r.ConflictExitCode), "conflict-exit-code", "E", "Exit code if another client holds the lock, at once with -n, or still when --wait is over. Defaults to 75.")
	flags.StringVar(&r.Label, "label", "", "The `TEXT` that tells others who holds the lock. Defaults to host:pid.")
	commandline.Bool(flags, &r.Quiet, "quiet", "q", "Do not report the wait, nor that another client holds the lock, nor which node is used by default. Other errors are still printed.")
	commandline.Bool(flags, &r.Verbose, "verbose", "v", "Report who holds the lock during a wait, and what the library does.")
	fromEnvironment(flags, "wait", "conflict-exit-code", "label")
}

// once reports whether the command tries once and does not wait.
func (r *acquisition) once() bool { return r.NoWait || r.Wait != nil && *r.Wait == 0 }

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
	case r.Quiet && r.Verbose:
		return usage("give one of them", "both --quiet and --verbose")
	case r.NoWait && r.Wait != nil && *r.Wait != 0 && os.Getenv("REDLATCH_WAIT") == "":
		return usage("give one of them", "both --no-wait and --wait %v", *r.Wait)
	case r.Wait != nil && *r.Wait < 0:
		return usage("--wait 0 tries once; without --wait redlatch waits for ever", "--wait %v is negative", *r.Wait)
	case r.ConflictExitCode < 0 || r.ConflictExitCode > 255:
		return usage("exit codes are 0 to 255", "--conflict-exit-code %d is not an exit code", r.ConflictExitCode)
	}
	return r.checkTTL(ttl)
}

// configure returns the library's settings for a lock of that TTL, and for each
// name the entry that a redlatch run inside of this one will find. It refuses a
// name that an enclosing redlatch run holds.
func (r *acquisition) configure(ttl time.Duration, out *printer) (redlatch.Config, []held, error) {
	cfg, err := r.lockConfig()
	if err != nil {
		return cfg, nil, err
	}
	on := cfg
	if r.ensemble != nil {
		on = redlatch.Config{Nodes: r.places(), KeyTemplate: cfg.KeyTemplate}
	}
	var ours []held
	for _, name := range r.names() {
		one := ourHold(name, on)
		if r.Permits != nil {
			one.place += permitPlace
		}
		if err := refuseNested(one); err != nil {
			return cfg, nil, err
		}
		ours = append(ours, one)
	}
	cfg.TTL, cfg.Label = ttl, r.Label
	if r.NodeTimeout == 0 && r.ensemble == nil {
		cfg.NodeTimeout = min(cfg.NodeTimeout, max(ttl/20, 50*time.Millisecond))
	}
	cfg.Logger = out.logger()
	return cfg, ours, nil
}

// open connects to the nodes, and begins the time of --wait. A signal and the end of that time end it, and
// leave nothing on the nodes: no lock was asked for yet.
func (r *acquisition) open(cfg redlatch.Config, sigs signals, out *printer) (*redlatch.Client, error) {
	type answer struct {
		client *redlatch.Client
		err    error
	}
	got := make(chan answer, 1) // room for one: nobody reads it after a signal
	go func() {
		client, err := r.connection.open(cfg, out)
		got <- answer{client, err}
	}()
	var over <-chan time.Time
	if r.Wait != nil && !r.once() {
		r.until = time.Now().Add(*r.Wait)
		over = time.After(*r.Wait)
	}
	for {
		select {
		case a := <-got:
			return a.client, a.err
		case <-over:
			return nil, r.tooLate()
		case sig := <-sigs:
			if stops(sig) {
				return nil, interrupted(sig, r.quoted())
			}
		}
	}
}

// acquire waits for the lock as --wait says. If it returns an outcome, it has left
// nothing on any node that can be reached, unless two signals interrupted it.
func (r *acquisition) acquire(client *redlatch.Client, sigs signals, out *printer, options []redlatch.Option) (*redlatch.Lock, *outcome) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	wait := client.Lock
	switch {
	case r.once():
		wait = client.TryLock
	case r.Wait != nil:
		timeout, stop := context.WithDeadline(ctx, r.until)
		defer stop()
		ctx = timeout
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
			case a.err == nil: // the lock was granted just before the signal came
				release(a.lock, out)
			}
			return nil, interrupted(interrupt, r.quoted())
		case sig := <-sigs:
			switch {
			case !stops(sig):
			case interrupt == nil:
				interrupt = sig
				cancel(errInterrupted)
			default: // a second signal: do not even wait for the clean-up
				end := interrupted(sig, r.quoted())
				end.abrupt = true
				return nil, end
			}
		}
	}
}

func interrupted(sig os.Signal, names string) *outcome {
	return &outcome{code: exitSignal + int(number(sig)), signal: number(sig), err: fmt.Errorf("%w by %s while waiting for %s", errInterrupted, signalName(sig), names)}
}

// tooLate is the outcome if --wait was over before it is known whether the lock is held.
func (r *acquisition) tooLate() *outcome {
	return &outcome{
		code:  exitNoQuorum,
		err:   fmt.Errorf("cannot lock %s: no quorum: --wait %v was over before enough nodes had answered", r.quoted(), *r.Wait),
		hints: []string{"redlatch doctor says which nodes do not answer; if they are only slow, raise --wait"},
	}
}

// acquireFailure turns an error of the library into an exit code and a message.
func (r *acquisition) acquireFailure(err error) *outcome {
	if _, asked := errors.AsType[*redlatch.QuorumError](err); !asked && errors.Is(err, context.DeadlineExceeded) {
		return r.tooLate()
	}
	if !errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrInvalid) || errors.Is(err, redlatch.ErrRefused) {
		return r.failed("lock "+r.quoted(), err)
	}
	end := &outcome{code: r.ConflictExitCode, err: fmt.Errorf("cannot lock %s: %w", r.quoted(), err)}
	if quorum, ok := errors.AsType[*redlatch.QuorumError](err); ok && r.once() {
		end.released = !slices.ContainsFunc(quorum.Nodes, func(node redlatch.NodeAnswer) bool { return node.Verdict == redlatch.VoteGranted })
	}
	if r.Quiet {
		end.err = nil
	} else if quorum, ok := errors.AsType[*redlatch.QuorumError](err); ok && len(r.Also) > 0 {
		end.err = fmt.Errorf("cannot lock %s: %s", r.quoted(), r.heldText(quorum))
	} else if ok && r.Permits != nil {
		end.err = fmt.Errorf("no permit of %q is free: %s", r.Name, r.holderText(quorum))
	} else if ok {
		end.err = fmt.Errorf("%q is held by another: %s", r.Name, r.holderText(quorum))
	}
	return end
}
