//go:build unix

package main

import (
	"cmp"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal and the two groups that take turns as
// its foreground: ours, which the shell put there, and COMMAND's, which may be
// the same. Without a controlling terminal it is nil, and its methods do nothing.
type terminal struct {
	fd     int
	ours   int
	theirs int
}

// openTerminal returns the controlling terminal, nil if there is none.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, ours: syscall.Getpgrp()}
}

// start tells of the group that COMMAND leads, 0 if it is in ours, and gives it the
// terminal if it has that to itself. COMMAND runs already; should it ask for the terminal before it has
// it, it is stopped and continued (see supervisor.stopped).
func (t *terminal) start(theirs int) {
	if t == nil {
		return
	}
	t.theirs = cmp.Or(theirs, t.ours)
	if theirs != 0 && t.interactive() {
		t.give()
	}
	// Taking the terminal back is done from the background, for which the
	// kernel would stop us. Not sooner: COMMAND would inherit it.
	signal.Ignore(syscall.SIGTTOU)
}

// foreground returns the group that reads the keyboard, 0 if there is none.
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

// interactive reports whether COMMAND has the terminal to itself: in a pipeline
// the others of our group may be the ones who read the keyboard.
func (t *terminal) interactive() bool {
	for _, fd := range []int{0, 1} {
		// Only a process's own controlling terminal answers this.
		if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil {
			return false
		}
	}
	return true
}

// give puts COMMAND into the foreground, if we are there.
func (t *terminal) give() {
	if t.isOurs() && t.theirs != t.ours {
		t.set(t.theirs)
	}
}

// takeBack puts us into the foreground, if COMMAND is there or if nobody is: a
// shell may have handed it to a job and died without taking it back. What
// somebody else took meanwhile is left alone.
func (t *terminal) takeBack() {
	group := t.foreground()
	if group > 0 && group != t.ours && (group == t.theirs || syscall.Kill(-group, 0) == syscall.ESRCH) {
		t.set(t.ours)
	}
}

func (t *terminal) set(group int) {
	// Fails when the terminal hung up or the group has ended: then there is
	// nothing to give.
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}
