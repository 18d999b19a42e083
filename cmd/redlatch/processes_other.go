//go:build unix && !linux

package main

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func adoptOrphans() {}

// dieWithParent does nothing: there is no way to make the kernel kill a child with its
// parent. Only the guards do that here.
func dieWithParent(*syscall.SysProcAttr) {}

func raisePriority() {}

func raise(int) {}

// blockSignals and unblockSignals do nothing: no system call for it exists on all systems.
func blockSignals(uint64) (before uint64) { return 0 }

func unblockSignals(uint64) {}

// canWalk fails: only COMMAND's group can be told from other processes here.
func canWalk() error { return errors.ErrUnsupported }

func walk(int, func(int) bool) error { return canWalk() }

func hasEnded(pid int) bool { return !processExists(pid) }

// birth is not known here: a process that gets the number of another is taken for it.
func birth(int) string { return "" }

// parentOf returns the parent of this process, and 0 for all others, whose parents are
// not known here.
func parentOf(pid int) int {
	if pid == os.Getpid() {
		return os.Getppid()
	}
	return 0
}

func describeProcess(pid int) string { return "process " + strconv.Itoa(pid) }

var ignoredSignals = sync.OnceValue(ignoredAsGoKnows)

func newSharedFile() (*os.File, error) { return newUnlinkedFile() }

// duplicate makes to another descriptor of the open file from.
func duplicate(from, to int) error { return os.NewSyscallError("dup2", unix.Dup2(from, to)) }

// awaitEnd returns when a process that is not a child of this one has ended.
func awaitEnd(pid int) {
	for processExists(pid) {
		time.Sleep(100 * time.Millisecond)
	}
}
