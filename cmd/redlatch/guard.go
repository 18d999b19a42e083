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
	"time"
)

// Three processes can kill COMMAND and all that it started, each on its own:
//
//	redlatch run ── the guard ── COMMAND's parent ── COMMAND
//
// The guard and COMMAND's parent, both called guards below, do it when redlatch
// run cannot:
//
//   - redlatch run is gone without having said so (SIGKILL, a crash);
//   - it is stopped, starved or was asleep with the machine, and the last
//     deadline that it told has passed.
//
// Each of the three becomes the parent of what processes below it leave behind,
// so that any one of them finds all of it, whichever others were killed. COMMAND
// itself dies with its parent.
//
// That redlatch run is gone, the guards are told by the kernel: it alone has the
// other end of a pipe that they read. The guard is in the caller's process group,
// to see which signals are sent to that (groupsignal.go), and may be killed or
// stopped with it. COMMAND's parent leaves that group when it has started COMMAND.
//
// Where COMMAND stays in the caller's group, its parent leaves the session as well:
// a process with a parent in its session and in another group can be continued by
// that, as far as the kernel knows (POSIX, "orphaned process group"). When the last
// such process of a group ends, the kernel sends SIGHUP to the whole group if one of
// it is stopped: to the caller, whose group it is, for no reason that it knows of.
//
// Not reached are processes of another user, what a service starts that COMMAND
// only asked for it, and, where there is no /proc, what left COMMAND's group.

// guards is redlatch run's side.
type guards struct {
	shared *shared
	// pid is the guard's. It is our child; ended is closed when it was waited
	// for, and the number may be somebody else's.
	pid   int
	ended chan struct{}
	// life ends the guards when it is closed; orders takes COMMAND's command
	// line to its parent; reports is what is heard of both.
	life, orders, reports *os.File
}

// startGuards starts both, which wait until they hear of a COMMAND. Until then
// they end when this process does.
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
	// Stdin, stdout and stderr are for COMMAND, as all that this process
	// inherited.
	// With these signals kept from it, the guard has them from one thread, in their
	// order, and does not die of one that comes before it catches them.
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

// inheritable has the programs that are started from now on inherit a file, and
// returns its number there.
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

// ownProgram is this program's file, to start it again. On Linux it is found though
// the file was replaced or deleted meanwhile: a wait for a lock may outlast an upgrade.
func ownProgram() (string, error) {
	if !runsMain {
		return "", errors.New("this program is not redlatch, but has some of it inside")
	}
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	self, err := os.Executable()
	if err != nil { // it needs /proc on Linux
		return lookup(os.Args[0])
	}
	return self, nil
}

// extend moves the time at which they kill COMMAND.
func (g *guards) extend(deadline time.Time) { g.shared.extend(deadline) }

// order has COMMAND's parent start it. It does not wait: COMMAND's parent may have
// been stopped.
func (g *guards) order(o order) {
	go func() {
		_, _ = io.WriteString(g.orders, o.encode()) // a parent that is gone is told of by a report
		g.orders.Close()
	}()
}

// release ends the guards without a kill.
func (g *guards) release() {
	g.shared.released.Store(true)
	g.life.Close()
}

// order is what COMMAND's parent is to start.
type order struct {
	path      string
	argv, env []string
	// ownGroup has it lead a process group of its own.
	ownGroup bool
}

// encode returns the order as text: no part of a command line has a zero byte.
func (o order) encode() string {
	fields := append([]string{o.path, strconv.FormatBool(o.ownGroup), strconv.Itoa(len(o.argv))}, o.argv...)
	return strings.Join(append(append(fields, o.env...), endOfOrder), "\x00")
}

// endOfOrder tells a whole order from one whose writer was killed.
const endOfOrder = "end"

func decodeOrder(text string) (order, error) {
	fields := strings.Split(text, "\x00")
	last := len(fields) - 1
	if last < 3 || fields[last] != endOfOrder {
		return order{}, fmt.Errorf("order with %d fields cut off", len(fields))
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

// guardReport is what a guard has to say.
type guardReport struct {
	Kind reportKind
	// Value is a pid, an errno or a wait status, by the kind.
	Value uint32
}

type reportKind uint32

const (
	// commandStarted has the pid of COMMAND, commandFailed why it was not
	// started (errno).
	commandStarted reportKind = iota
	commandFailed
	// commandChanged, orphanChanged and parentEnded have a wait status: COMMAND's
	// from its parent, and from the guard, to which it came when its parent ended.
	commandChanged
	orphanChanged
	parentEnded
)

// send writes a report at once, so that those of both guards do not mix.
func (r guardReport) send(to io.Writer) {
	_ = binary.Write(to, binary.NativeEndian, r) // one who is gone is told of by the end of life
}

// readReports calls f for each until both guards are gone.
func (g *guards) readReports(f func(guardReport)) {
	for {
		var r guardReport
		if err := binary.Read(g.reports, binary.NativeEndian, &r); err != nil {
			return
		}
		f(r)
	}
}
