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

// shared is memory that redlatch run and its guards have in common (guard.go).
// Unlike lines in a pipe it does not fill up while a guard is stopped, and says
// what is so now and not what was.
type shared struct {
	// deadline is when COMMAND is to be killed, on clock.Boot; 0 before there is
	// a COMMAND. It only moves on.
	deadline atomic.Int64
	// released: COMMAND is not to be killed any more.
	released atomic.Bool
	// expired: the guards have killed COMMAND because the deadline has passed.
	expired atomic.Bool

	// parent is COMMAND's parent process, and command COMMAND itself, once
	// each has started.
	parent, command atomic.Int32
	// blocked are the signals that redlatch run was started without, and COMMAND
	// is too.
	blocked atomic.Uint64
	// group is the process group that COMMAND leads; 0 when it is in its
	// caller's.
	group atomic.Int32

	// ready: the guard catches signals. seen counts those it has caught, and
	// answered follows asked when it has caught all that were sent before
	// (groupsignal.go).
	ready           atomic.Bool
	asked, answered atomic.Uint32
	seen            [signalCount]atomic.Uint32
}

// signalCount is more than the number of any signal that is counted, and how many
// there are in a mask.
const signalCount = 64

// sharedSize is a whole page.
var sharedSize = max(os.Getpagesize(), int(unsafe.Sizeof(shared{})))

// newShared makes the memory, and the file by which other processes get it.
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

// mapShared returns the memory behind a file, for as long as the process lives.
func mapShared(file *os.File) (*shared, error) {
	page, err := unix.Mmap(int(file.Fd()), 0, sharedSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return (*shared)(unsafe.Pointer(unsafe.SliceData(page))), nil
}

// extend moves the deadline.
func (s *shared) extend(deadline time.Time) {
	// The second clock is read first: when this process is stopped in between,
	// the deadline that is told is too early, not too late.
	now := clock.Boot()
	s.deadline.Store(int64(now + time.Until(deadline)))
}

// left is how long it is to the deadline. There is none before COMMAND starts.
func (s *shared) left() (left time.Duration, set bool) {
	deadline := time.Duration(s.deadline.Load())
	return deadline - clock.Boot(), deadline != 0
}
