package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// The exit codes. Those from 64 on have the meaning of sysexits(3), 128+n that of shells.
const (
	// exitViolated is the verdict of a run with a violation, or of one that proved nothing.
	exitViolated = 1
	exitUsage    = 64
	exitSystem   = 71
)

// outcome is the end of a command: its exit code and its error message. An outcome without err
// prints nothing.
type outcome struct {
	code int
	err  error
	// hint says what the user can do about err. It may be empty.
	hint string
}

func (o *outcome) Error() string {
	if o.err == nil {
		return fmt.Sprintf("exit code %d", o.code)
	}
	return o.err.Error()
}

func (o *outcome) Unwrap() error { return o.err }

// usage returns the outcome for a wrong command line.
func usage(hint, format string, args ...any) *outcome {
	return &outcome{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// failed returns the outcome of a run that err made impossible, or nil if err is nil. what names
// the run in the message. A signal has cancelled ctx, with a SignalError as the cause.
func failed(ctx context.Context, what string, err error) error {
	interrupt, interrupted := errors.AsType[*commandline.SignalError](context.Cause(ctx))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redlatch.ErrInvalid):
		return &outcome{code: exitUsage, err: err}
	case interrupted && errors.Is(err, interrupt):
		return &outcome{code: interrupt.Code()}
	}
	return &outcome{code: exitSystem, err: fmt.Errorf("%s: %w", what, err)}
}

// judged returns the outcome of a run that took place. The exit code is that of a violation if
// there was one, else that of the signal that ended the run, else that of a run that proved
// nothing. ok is false if the run proved nothing.
func judged(ctx context.Context, violations int, ok bool) error {
	interrupt, interrupted := errors.AsType[*commandline.SignalError](context.Cause(ctx))
	switch {
	case violations > 0:
		return &outcome{code: exitViolated}
	case interrupted:
		return &outcome{code: interrupt.Code()}
	case !ok:
		return &outcome{code: exitViolated}
	}
	return nil
}
