//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"
)

// How COMMAND ended may be known to nobody: to its parent alone, which was killed.
func TestResultOfACommandThatNobodySawEnd(t *testing.T) {
	s := supervisor{child: &child{}, ending: ranTooLong, killed: time.Now(), alone: true}
	if got, want := s.result().code, exitSignal+int(syscall.SIGKILL); got != want {
		t.Errorf("redlatch killed COMMAND and then its parent: exit code %d, want %d", got, want)
	}
	s = supervisor{child: &child{}, ending: parentKilled, killed: time.Now(), alone: true}
	if got := s.result().code; got != exitSystem {
		t.Errorf("somebody killed COMMAND's parent: exit code %d, want %d", got, exitSystem)
	}
}
