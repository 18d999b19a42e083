//go:build unix && !linux

package main

import (
	"errors"
	"os"
	"syscall"
)

// commandAttr makes COMMAND the leader of a group. There is no way to have the
// kernel kill it with this process: that is left to the guard alone.
func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adoptOrphans() {}

// descendants fails: only the group can be told from other processes.
func descendants(int, int) ([]int, error) { return nil, errors.ErrUnsupported }

// birth is not known; a number that is used again is taken for the same
// process.
func birth(int) string { return "" }

// parentOf returns 0 when it is not known: for all processes but this one.
func parentOf(pid int) int {
	if pid == os.Getpid() {
		return os.Getppid()
	}
	return 0
}
