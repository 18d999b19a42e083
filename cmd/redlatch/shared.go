//go:build unix

package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/redlatch/redlatch/internal/clock"
	"golang.org/x/sys/unix"
)

// shared is memory that redlatch run and its guards share (guard.go). Unlike a pipe,
// it does not fill up while a guard is stopped, and it has the present state, not
// past ones.
type shared struct {
	// deadline is when the guards have to kill COMMAND, on clock.Boot, or 0 before
	// COMMAND starts. It never moves back.
	deadline atomic.Int64
	// released: the guards must not kill COMMAND any more.
	released atomic.Bool
	// expired: a guard kills COMMAND, or has killed it, because the deadline has passed.
	expired atomic.Bool

	// parent is COMMAND's parent process, and command COMMAND itself, once
	// each has started.
	parent, command atomic.Int32
	// blocked are the signals that were blocked when redlatch run started. COMMAND
	// starts with the same signals blocked.
	blocked atomic.Uint64
	// group is the process group that COMMAND leads, or 0 if COMMAND is in its
	// caller's group.
	group atomic.Int32

	// ready: the guard catches signals. seen counts the signals that it has caught,
	// by their number. The guard sets answered to asked when it has caught all
	// signals that were sent before the question (groupsignal.go).
	ready           atomic.Bool
	asked, answered atomic.Uint32
	seen            [signalCount]atomic.Uint32
}

// signalCount is larger than the number of any signal that is counted. It is also the
// number of signals in a mask.
const signalCount = 64

// sharedSize is a whole page.
var sharedSize = max(os.Getpagesize(), int(unsafe.Sizeof(shared{})))

// newShared makes the memory, and the file that other processes map it from.
func newShared() (*shared, *os.File, error) {
	file, err := newSharedFile()
	if err != nil {
		return nil, nil, err
	}
	if err := file.Truncate(int64(sharedSize)); err != nil {
		file.Close()
		return nil, nil, err
	}
	s, err := mapShared(file)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return s, file, nil
}

func newUnlinkedFile() (*os.File, error) {
	file, err := os.CreateTemp("", "redlatch")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

// mapShared maps the memory from a file. It stays mapped until the process ends.
func mapShared(file *os.File) (*shared, error) {
	page, err := unix.Mmap(int(file.Fd()), 0, sharedSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return (*shared)(unsafe.Pointer(unsafe.SliceData(page))), nil
}

// extend moves the deadline.
func (s *shared) extend(deadline clock.Instant) {
	now := clock.System.Now()
	s.deadline.Store(int64(now.Boot + now.Until(deadline)))
}

// left returns the time left until the deadline. It is not set before COMMAND starts.
func (s *shared) left() (left time.Duration, set bool) {
	deadline := time.Duration(s.deadline.Load())
	return deadline - clock.Boot(), deadline != 0
}
