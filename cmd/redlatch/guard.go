//go:build unix

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/redlatch/redlatch/internal/clock"
)

// Three processes can kill COMMAND and all that it started, each on its own:
//
//	redlatch run ── the guard ── COMMAND's parent ── COMMAND
//
// The guard and COMMAND's parent, both called guards below, do it when redlatch
// run cannot:
//
//   - redlatch run has ended without releasing the guards (SIGKILL, a crash);
//   - redlatch run was stopped, starved or asleep with the machine, and the last
//     deadline that it set has passed.
//
// Each of the three adopts the processes that processes below it leave behind. So
// any one of them finds all of COMMAND's processes, whichever of the other two were
// killed. COMMAND itself dies with its parent.
//
// The kernel tells the guards when redlatch run has ended: it alone has the other
// end of a pipe that they read. The guard is in the caller's process group, so that
// it sees which signals are sent to the group (groupsignal.go). So it may be killed
// or stopped with the group. COMMAND's parent leaves the group when it has started
// COMMAND.
//
// If COMMAND stays in the caller's group, its parent leaves the session as well. If
// it stayed in the session but in another group, the kernel would take it for a
// process that can continue COMMAND (POSIX, "orphaned process group"). When the last
// such process of a group ends, the kernel sends SIGHUP to the whole group if a
// process of the group is stopped: the caller, whose group it is, would get SIGHUP
// for no reason that it could know.
//
// The guards do not reach processes of another user, processes that a service starts
// at COMMAND's request, and, without /proc, processes that left COMMAND's group.

// guards are the guards as redlatch run sees them.
type guards struct {
	shared *shared
	// pid is the guard, a child of this process. ended is closed when this process
	// has waited for it; from then on pid may be the number of another process.
	pid   int
	ended chan struct{}
	// The guards end when life is closed. orders takes COMMAND's command line to
	// its parent. reports has the reports of both guards.
	life, orders, reports *os.File
}

// startGuards starts both guards, which wait for the order to start COMMAND. Until
// then they end when this process ends.
func startGuards() (*guards, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, err
	}
	shared, file, err := newShared()
	if err != nil {
		return nil, err
	}
	g := &guards{shared: shared, ended: make(chan struct{})}
	theirs := []*os.File{file}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for _, ours := range []**os.File{&g.life, &g.orders, &g.reports} {
		r, w, err := os.Pipe()
		if err != nil {
			g.close()
			return nil, err
		}
		if ours == &g.reports {
			r, w = w, r
		}
		*ours, theirs = w, append(theirs, r)
	}
	args := []string{os.Args[0], "guard-process"}
	for _, f := range theirs {
		args = append(args, strconv.Itoa(inheritable(f)))
	}
	// Stdin, stdout and stderr are for COMMAND, as is all that this process
	// inherited.
	// The guard starts with these signals blocked. So one thread gets them, in
	// order, and the guard does not die of one that comes before it catches them. The
	// Go runtime unblocks those that end a process: see runCmd.locked.
	runtime.LockOSThread()
	before := blockSignals(maskOf(guardSignals))
	shared.blocked.Store(before)
	g.pid, err = syscall.ForkExec(self, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	unblockSignals(maskOf(guardSignals) &^ before)
	runtime.UnlockOSThread()
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// inheritable lets the programs that this process starts from now on inherit a file,
// and returns the number of the file in them.
func inheritable(f *os.File) int {
	fd := f.Fd()
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, 0) // cannot fail: it is open
	return int(fd)
}

func (g *guards) close() {
	for _, f := range []*os.File{g.life, g.orders, g.reports} {
		if f != nil {
			f.Close()
		}
	}
}

// ownProgram returns the file of this program, to start it again. On Linux it finds
// the file even if it was replaced or deleted meanwhile: a wait for a lock may outlast
// an upgrade.
func ownProgram() (string, error) {
	if !runsMain {
		return "", errors.New("this program is not redlatch, but contains parts of it")
	}
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	self, err := os.Executable()
	if err != nil { // on Linux, os.Executable needs /proc
		return lookup(os.Args[0])
	}
	return self, nil
}

// extend moves the time at which the guards kill COMMAND.
func (g *guards) extend(deadline clock.Instant) { g.shared.extend(deadline) }

// order tells COMMAND's parent to start COMMAND. It does not wait, as COMMAND's parent
// may have been stopped.
func (g *guards) order(o order) {
	go func() {
		_, _ = io.WriteString(g.orders, o.encode()) // it fails if the parent has ended, which a report says
		g.orders.Close()
	}()
}

// release ends the guards, and they kill nothing.
func (g *guards) release() {
	g.shared.released.Store(true)
	g.life.Close()
}

// order says what COMMAND's parent is to start.
type order struct {
	path      string
	argv, env []string
	// ownGroup: COMMAND is to lead a process group of its own.
	ownGroup bool
}

// encode returns the order as text, its fields separated by zero bytes, which no part
// of a command line contains.
func (o order) encode() string {
	fields := append([]string{o.path, strconv.FormatBool(o.ownGroup), strconv.Itoa(len(o.argv))}, o.argv...)
	return strings.Join(append(append(fields, o.env...), endOfOrder), "\x00")
}

// endOfOrder ends a complete order. It is missing if the writer was killed.
const endOfOrder = "end"

func decodeOrder(text string) (order, error) {
	fields := strings.Split(text, "\x00")
	last := len(fields) - 1
	if last < 3 || fields[last] != endOfOrder {
		return order{}, fmt.Errorf("incomplete order of %d fields", len(fields))
	}
	ownGroup, err := strconv.ParseBool(fields[1])
	if err != nil {
		return order{}, err
	}
	argc, err := strconv.Atoi(fields[2])
	if err != nil || 3+argc > last {
		return order{}, fmt.Errorf("order of %d fields with %q arguments", len(fields), fields[2])
	}
	return order{path: fields[0], ownGroup: ownGroup, argv: fields[3 : 3+argc], env: fields[3+argc : last]}, nil
}

// guardReport is a message of a guard to redlatch run.
type guardReport struct {
	Kind reportKind
	// Value is a pid, an errno or a wait status, depending on Kind.
	Value uint32
}

type reportKind uint32

const (
	// commandStarted has the pid of COMMAND. commandFailed has the errno of a start
	// that failed.
	commandStarted reportKind = iota
	commandFailed
	// The next three have a wait status. commandChanged is COMMAND's status, reported
	// by its parent. orphanChanged is COMMAND's status, reported by the guard, which
	// has adopted COMMAND after the end of its parent. parentEnded is the parent's.
	commandChanged
	orphanChanged
	parentEnded
)

// send writes a report in one piece, so that the reports of the two guards do not mix.
func (r guardReport) send(to io.Writer) {
	_ = binary.Write(to, binary.NativeEndian, r) // it fails if redlatch run has ended, which the end of life says
}

// readReports calls f for each report until both guards have ended.
func (g *guards) readReports(f func(guardReport)) {
	for {
		var r guardReport
		if err := binary.Read(g.reports, binary.NativeEndian, &r); err != nil {
			return
		}
		f(r)
	}
}
