//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// The guard is a process that kills COMMAND when redlatch run cannot:
//
//   - redlatch run is gone without having said so (SIGKILL, a crash). The kernel
//     then kills COMMAND itself on Linux, but not what COMMAND started;
//   - redlatch run is stopped, starved or was asleep with the machine, and the
//     last deadline it told has passed.
//
// It reads lines from a pipe whose other end only redlatch run has, so that the
// kernel tells of its end. It is in a session of its own, where no signal meant
// for the job reaches it.
//
// Not reached are processes that left COMMAND's group when redlatch run is
// killed with SIGKILL, and processes of another user.

// The lines: "group PID", "until NS" (on the clock that runs through suspend),
// "done".
const (
	lineGroup = "group"
	lineUntil = "until"
	lineDone  = "done"
)

// guard is redlatch run's side.
type guard struct {
	pid  int
	pipe *os.File
}

func startGuard() (*guard, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	pid, err := syscall.ForkExec(self, []string{os.Args[0], "guard-process"}, &syscall.ProcAttr{
		Dir:   "/", // keeps no file system busy
		Env:   os.Environ(),
		Files: []uintptr{r.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return &guard{pid: pid, pipe: w}, nil
}

// ownProgram is this program's file. On Linux it is found though the file was
// replaced or deleted meanwhile: a wait for a lock may outlast an upgrade.
func ownProgram() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// watch names the group to kill.
func (g *guard) watch(pgid int) { g.tell(lineGroup, int64(pgid)) }

// extend moves the deadline, at which COMMAND is to be killed.
func (g *guard) extend(deadline time.Time) {
	// The second clock is read first: when this process is stopped in between,
	// the deadline that is told is too early, not too late.
	now := clock.Boot()
	g.tell(lineUntil, int64(now+time.Until(deadline)))
}

// release ends the guard without a kill.
func (g *guard) release() {
	g.tell(lineDone, 0)
	g.pipe.Close()
}

func (g *guard) tell(line string, value int64) {
	// A guard that was stopped does not read, and must not stop us. One that
	// was killed is told of by an event.
	_ = g.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_, _ = fmt.Fprintln(g.pipe, line, value)
}

// guardCmd is the guard's own side: a hidden command.
type guardCmd struct{}

func (guardCmd) Run(*printer) error {
	// It has to outlive everything that tells redlatch run to end.
	for _, sig := range slices.Concat(forwarded, jobControl) {
		signal.Ignore(sig)
	}
	parent := os.Getppid()
	bell, err := newAlarm()
	if err != nil {
		return err
	}
	orders := make(chan order)
	go readOrders(orders)

	group, deadline := 0, time.Duration(0)
	for {
		select {
		case o, ok := <-orders:
			switch {
			case !ok: // redlatch run is gone
				killGroup(group)
				return nil
			case o.line == lineGroup:
				group = int(o.value)
			case o.line == lineUntil:
				deadline = time.Duration(o.value)
				bell.set(deadline)
			case o.line == lineDone:
				return nil
			}
		case <-bell.rings:
			if clock.Boot() < deadline {
				continue // it was moved meanwhile
			}
			killGroup(group)
			if left, err := descendants(parent, os.Getpid()); err == nil && parent > 1 {
				for _, pid := range left {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			return &outcome{code: exitLost}
		}
	}
}

type order struct {
	line  string
	value int64
}

// readOrders closes orders when the other end of stdin is gone.
func readOrders(orders chan<- order) {
	defer close(orders)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		if _, err := fmt.Sscan(lines.Text(), &o.line, &o.value); err != nil {
			continue // cut off in the middle: the end of the pipe follows
		}
		orders <- o
	}
}

func killGroup(pgid int) {
	if pgid > 1 {
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
	}
}
