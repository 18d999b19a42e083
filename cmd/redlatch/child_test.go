//go:build unix

package main

import (
	"syscall"
	"testing"
)

// What could not be started ends redlatch run as in a shell, and as a lost lock does where the guard
// was so late that it did not try.
func TestStartFailure(t *testing.T) {
	for err, code := range map[syscall.Errno]int{
		syscall.ENOENT:    exitNotFound,
		syscall.ENOEXEC:   exitNotExec,
		syscall.EACCES:    exitNotExec,
		syscall.ENOMEM:    exitSystem,
		syscall.ECANCELED: exitLost,
	} {
		if got := startFailure("command", err); got.code != code {
			t.Errorf("%v: exit code %d, want %d", err, got.code, code)
		}
	}
}
