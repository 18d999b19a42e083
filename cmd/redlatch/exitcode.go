package main

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// The exit codes of redlatch itself. 64 to 77 have the meaning of sysexits(3), 124
// to 127 and 128+n that of timeout(1) and of shells.
const (
	exitUsage    = 64
	exitNoQuorum = 69
	exitInternal = 70
	exitSystem   = 71
	exitHeld     = 75
	exitLost     = 76
	exitRefused  = 77
	exitMaxRun   = 124
	exitNotExec  = 126
	exitNotFound = 127
	exitSignal   = commandline.ExitSignal
)

// exitCodes are the exit codes that `redlatch run --help` shows.
var exitCodes = []struct{ code, meaning string }{
	{"0-255", "COMMAND's own exit code, if it ended by itself while the lock was held"},
	{"64", "usage: a flag, a URL or a TTL is wrong, the nodes have recorded other settings, or an enclosing redlatch run holds a NAME"},
	{"69", "no quorum: too few nodes answered or were admitted"},
	{"70", "an internal error"},
	{"71", "the operating system refused a process, a pipe or the like"},
	{"75", "another client holds the lock (-E sets another code)"},
	{"76", "the lock was lost while COMMAND ran, whatever its exit code; COMMAND was killed if it was still running"},
	{"77", "a node refused (password, permission, wrong type, ...): waiting does not help"},
	{"124", "COMMAND ran longer than --max-run, and ended on SIGTERM"},
	{"126", "COMMAND was found but cannot be executed"},
	{"127", "COMMAND was not found"},
	{"137", "COMMAND ran longer than --max-run, and SIGKILL ended it after --grace"},
	{"128+n", "COMMAND died of signal n, or signal n ended the wait for the lock. If n is INT, redlatch itself dies of INT, so that a shell's loop ends; shells show 130"},
}

// exitTable formats the exit codes for help texts. The help printer leaves a line
// that begins with a tab as it is.
func exitTable() string {
	var table strings.Builder
	for _, row := range exitCodes {
		fmt.Fprintf(&table, "\t%-6s %s\n", row.code, row.meaning)
	}
	return table.String()
}

// outcome is the end of a command: its exit code and its error message. An outcome
// without err prints nothing.
type outcome struct {
	code int
	err  error
	// details are lines below the error, such as each node's answer.
	details []string
	// hints are remedies, one per line.
	hints []string
	// signal is the signal that COMMAND died of, or that ended the command.
	signal syscall.Signal
	// interrupted: while COMMAND ran, a signal came that ends the hold of --min-hold.
	interrupted bool
	// abrupt: the process ends at once, without a clean-up.
	abrupt bool
	// released: a quorum of the nodes, or all nodes that have answered, have nothing
	// of this lock any more.
	released bool
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
	return &outcome{code: exitUsage, err: fmt.Errorf(format, args...), hints: []string{hint}}
}
