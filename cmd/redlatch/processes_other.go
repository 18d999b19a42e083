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

// dieWithParent: there is no way to have the kernel kill a child with its parent.
// That is left to the guards alone.
func dieWithParent(*syscall.SysProcAttr) {}

func raisePriority() {}

func raise(int) {}

// blockSignals and unblockSignals have no system call that all systems have.
func blockSignals(uint64) (before uint64) { return 0 }

func unblockSignals(uint64) {}

// canWalk fails: only the group can be told from other processes.
func canWalk() error { return errors.ErrUnsupported }

func walk(int, func(int) bool) error { return canWalk() }

func hasEnded(pid int) bool { return !processExists(pid) }

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

func describeProcess(pid int) string { return "process " + strconv.Itoa(pid) }

var ignoredSignals = sync.OnceValue(ignoredAsGoKnows)

func newSharedFile() (*os.File, error) { return newUnlinkedFile() }

// duplicate makes to another number for the open file from.
func duplicate(from, to int) error { return os.NewSyscallError("dup2", unix.Dup2(from, to)) }

// awaitEnd returns when a process that is no child of ours has ended.
func awaitEnd(pid int) {
	for processExists(pid) {
		time.Sleep(100 * time.Millisecond)
	}
}
