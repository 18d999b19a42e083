//go:build unix

package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forward passes on what was sent to this process, unless COMMAND has it already.
func (s *supervisor) forward(sig os.Signal) {
	switch {
	case sig == syscall.SIGCONT:
		s.resume()
	case sig == syscall.SIGTTIN: // for who reads the keyboard, not for us
	case s.child.group == 0 && s.child.sentToGroup(sig, time.Until(s.terms.killAt(s.told))/2):
	default:
		s.child.signal(number(sig))
	}
}

// stopped is called when COMMAND was stopped by sig.
func (s *supervisor) stopped(sig syscall.Signal) {
	switch {
	case s.ending != notEnding:
		s.child.signal(syscall.SIGCONT)
	case sig == syscall.SIGSTOP:
		// By somebody who wants to look at it, and who can continue it: the
		// lock is renewed meanwhile.
		s.out.detail("COMMAND was stopped")
	case sig != syscall.SIGTSTP && (s.tty.isTheirs() || s.tty.isOurs()):
		// It wants the terminal, which it may have: it was quicker than we
		// were, or is the first of a pipeline to ask.
		s.tty.give()
		s.child.signal(syscall.SIGCONT)
	default:
		s.suspend()
	}
}

// suspend stops this process with COMMAND, so that the shell sees a stopped job
// and takes the terminal. Nobody renews the lock then, on purpose: a job that
// was put away must not keep others waiting for ever. The guard kills COMMAND
// when the lock ends.
func (s *supervisor) suspend() {
	if orphaned() {
		s.resume()
		return
	}
	s.out.say("stopped: %s is not renewed; COMMAND is killed at %s unless it is continued before", s.names, s.terms.continueBefore(s.told).Format("15:04:05.0"))
	s.out.flush(100 * time.Millisecond) // who is stopped does not write
	if s.child.group != 0 && s.tty.isTheirs() {
		// Ctrl-Z reached COMMAND's group alone: the rest of a pipeline, which
		// is in our group, has to stop as well. The shell takes the terminal.
		s.sigs.sparing(func() { _ = syscall.Kill(0, syscall.SIGTSTP) })
	}
	// SIGTSTP would not do for ourselves: os/signal cannot give a signal that
	// was caught its default action back.
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	// The stop comes a little after the call, so its end is waited for, not its
	// beginning.
	for sig := range s.sigs {
		if number(sig) == syscall.SIGCONT {
			break
		}
		s.forward(sig)
	}
	s.resume()
}

// orphaned reports whether nobody would continue us: a shell does that for its
// jobs, which are in its session and not in its group (POSIX, "orphaned process
// group"). The first process of a terminal, as in a container, has no such
// parent.
func orphaned() bool {
	for pid := os.Getpid(); ; {
		parent := parentOf(pid)
		group, err := unix.Getpgid(parent)
		if parent <= 0 || err != nil {
			return true
		}
		if group != syscall.Getpgrp() {
			theirs, err := unix.Getsid(parent)
			ours, _ := unix.Getsid(0)
			return err != nil || theirs != ours
		}
		pid = parent
	}
}

// resume continues COMMAND after this process was continued, in the foreground
// if that is where the shell put us, unless the lock ended meanwhile.
func (s *supervisor) resume() {
	if err := s.lock.Err(); err != nil {
		if s.ending != lockLost {
			s.lose(err)
		}
		return
	}
	s.tty.give()
	s.child.signal(syscall.SIGCONT)
}
