package main

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// The exit codes of redlatch's own. Those from 64 on have the meaning of
// sysexits(3), 124 to 127 and 128+n that of timeout(1) and of shells.
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

// exitCodes is what `redlatch run --help` shows.
var exitCodes = []struct{ code, meaning string }{
	{"0-255", "COMMAND's own, when it ended by itself while the lock was held"},
	{"64", "usage: a flag, a URL or a TTL is wrong, or a NAME is held by an enclosing redlatch run"},
	{"69", "no quorum: too few nodes answered or were admitted"},
	{"70", "an internal error"},
	{"71", "the operating system refused a process, a pipe or the like"},
	{"75", "held by another (-E sets another code)"},
	{"76", "the lock was lost while COMMAND ran, whatever its exit code; COMMAND was killed if it still ran"},
	{"77", "a node refused (password, permission, wrong type, ...): waiting does not cure it"},
	{"124", "COMMAND ran longer than --max-run, and ended when SIGTERM told it to"},
	{"126", "COMMAND was found and cannot be executed"},
	{"127", "COMMAND was not found"},
	{"137", "COMMAND ran longer than --max-run, and SIGKILL ended it after --grace"},
	{"128+n", "COMMAND died of signal n, or signal n ended the wait for the lock. Of INT, redlatch dies itself, so that a shell's loop ends: shells show 130"},
}

// exitTable lays the exit codes out for help texts: a tab makes the help
// printer leave a line as it is.
func exitTable() string {
	var table strings.Builder
	for _, row := range exitCodes {
		fmt.Fprintf(&table, "\t%-6s %s\n", row.code, row.meaning)
	}
	return table.String()
}

// outcome ends a command: the code to exit with and what to say about it. An
// outcome without err is silent.
type outcome struct {
	code int
	err  error
	// details go below the error, a line each: every node's answer.
	details []string
	// hints are remedies, a line each.
	hints []string
	// signal is what COMMAND died of, or what ended the wait for the lock.
	signal syscall.Signal
	// abrupt: nothing is cleaned up any more.
	abrupt bool
	// released: the nodes that have answered have nothing of ours, or a quorum of them.
	released bool
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
	return &outcome{code: exitUsage, err: fmt.Errorf(format, args...), hints: []string{hint}}
}
