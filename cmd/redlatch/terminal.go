//go:build unix

package main

import (
	"cmp"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal and the two process groups that take turns in
// its foreground: the group of this process, which the shell put there, and COMMAND's,
// which may be the same. Without a controlling terminal it is nil, and its methods do
// nothing.
type terminal struct {
	fd     int
	ours   int
	theirs int
}

// openTerminal returns the controlling terminal, or nil if there is none.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, ours: syscall.Getpgrp()}
}

// start sets the group that COMMAND leads, or 0 if it is in the group of this process.
// If COMMAND has the terminal to itself, start gives the terminal to its group. COMMAND
// is already running: if it asks for the terminal too early, it is stopped and
// continued (see supervisor.stopped).
func (t *terminal) start(theirs int) {
	if t == nil {
		return
	}
	t.theirs = cmp.Or(theirs, t.ours)
	if theirs != 0 && t.interactive() {
		t.give()
	}
	// This process takes the terminal back from the background, for which the
	// kernel would stop it with SIGTTOU. It must not ignore the signal before
	// COMMAND has started: COMMAND would inherit that.
	signal.Ignore(syscall.SIGTTOU)
}

// foreground returns the group that reads the keyboard, or 0 if there is none.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

func (t *terminal) isOurs() bool   { return t != nil && t.foreground() == t.ours }
func (t *terminal) isTheirs() bool { return t != nil && t.foreground() == t.theirs }

// interactive reports whether COMMAND has the terminal to itself. In a pipeline,
// other processes of this process's group may read the keyboard.
func (t *terminal) interactive() bool {
	for _, fd := range []int{0, 1} {
		// Only the controlling terminal of a process answers this.
		if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil {
			return false
		}
	}
	return true
}

// give puts COMMAND into the foreground, if this process is there.
func (t *terminal) give() {
	if t.isOurs() && t.theirs != t.ours {
		t.set(t.theirs)
	}
}

// takeBack puts this process into the foreground, if COMMAND is there or nobody is: a
// shell may have given the terminal to a job and died without taking it back. If
// another group has taken the terminal meanwhile, takeBack leaves it there.
func (t *terminal) takeBack() {
	group := t.foreground()
	if group > 0 && group != t.ours && (group == t.theirs || syscall.Kill(-group, 0) == syscall.ESRCH) {
		t.set(t.ours)
	}
}

func (t *terminal) set(group int) {
	// It fails if the terminal has hung up or the group has ended: then there is
	// nothing to do.
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}
