package main

import "fmt"

// The exit codes. Those from 64 on have the meaning of sysexits(3), 128+n that of shells.
const (
	// exitViolated is the only verdict but 0.
	exitViolated = 1
	exitUsage    = 64
	exitSystem   = 71
	exitSignal   = 128
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
