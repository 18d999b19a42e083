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
	// exitViolated is the only verdict but 0.
	exitViolated = 1
	exitUsage    = 64
	exitSystem   = 71
)

// outcome ends a command: the code to exit with and what to say about it. An outcome without
// err is silent.
type outcome struct {
	code int
	err  error
	// hint is a remedy.
	hint string
}

func (o *outcome) Error() string {
	if o.err == nil {
		return fmt.Sprintf("exit code %d", o.code)
	}
	return o.err.Error()
}

func (o *outcome) Unwrap() error { return o.err }

// usage reports that the command line is at fault.
func usage(hint, format string, args ...any) *outcome {
	return &outcome{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// failed is the outcome of a run that could not be made because of err, nil where err is; what
// names it. ctx was ended by the signal, if there was one.
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

// judged is the outcome of a run that was made: a violation comes before the signal that
// ended it, and that before too little to prove anything.
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
