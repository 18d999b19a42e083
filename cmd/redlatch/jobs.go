//go:build unix

package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlatch/redlatch"
)

// forward passes a signal on to COMMAND, unless COMMAND has got it, too.
func (s *supervisor) forward(sig os.Signal) {
	s.interrupted = s.interrupted || stops(sig)
	switch {
	case sig == syscall.SIGCONT:
		s.resume()
	case sig == syscall.SIGTTIN: // it is for the process that reads the keyboard, not for this one
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
		// Somebody wants to look at COMMAND, and can continue it: the lock is
		// renewed meanwhile.
		s.out.detail("COMMAND was stopped")
	case sig != syscall.SIGTSTP && (s.tty.isTheirs() || s.tty.isOurs()):
		// COMMAND wants the terminal, and may have it: it asked before this
		// process gave it the terminal, or it is the first of a pipeline to ask.
		s.tty.give()
		s.child.signal(syscall.SIGCONT)
	default:
		s.suspend()
	}
}

// suspend stops this process with COMMAND, so that the shell sees a stopped job
// and takes the terminal. On purpose, nobody renews the lock then: a stopped job
// must not keep others waiting for ever. The guard kills COMMAND when the lock ends.
func (s *supervisor) suspend() {
	if orphaned() {
		s.resume()
		return
	}
	s.out.say("stopped: %s is not renewed; COMMAND is killed at %s unless it is continued before", s.names, s.terms.continueBefore(s.told).Format("15:04:05.0"))
	s.out.flush(100 * time.Millisecond) // a stopped process writes nothing
	if s.child.group != 0 && s.tty.isTheirs() {
		// Ctrl-Z reached only COMMAND's group. The rest of a pipeline, which is
		// in this process's group, has to stop as well. The shell takes the terminal.
		s.sigs.sparing(func() { _ = syscall.Kill(0, syscall.SIGTSTP) })
	}
	// SIGTSTP would not stop this process: once a signal was caught, os/signal
	// cannot restore its default action.
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	// The stop comes a little after the call, so this waits for the end of the
	// stop, not for its beginning.
	for sig := range s.sigs {
		if number(sig) == syscall.SIGCONT {
			break
		}
		s.forward(sig)
	}
	s.resume()
}

// stop stops this process with its job after COMMAND has ended. As in suspend, nobody renews the lock
// then.
func (r *runCmd) stop(lock *redlatch.Lock, out *printer) {
	if orphaned() {
		return
	}
	out.say("stopped: %s is not renewed; it is lost at %s unless the job is continued before", r.quoted(), r.terms().continueBefore(lock.Until()).Format("15:04:05.0"))
	out.flush(100 * time.Millisecond)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// orphaned reports whether nobody would continue this process if it were stopped. A
// shell continues its jobs, which are in its session but not in its group (POSIX,
// "orphaned process group"). The first process of a terminal, as in a container, has
// no such parent.
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

// resume continues COMMAND after this process was continued. It puts COMMAND into
// the foreground if the shell has put this process there. If the lock has ended
// meanwhile, resume ends COMMAND.
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
