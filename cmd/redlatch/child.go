//go:build unix

package main

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
)

// child is COMMAND: a process group of its own, and the guard process that
// outlives this one (guard.go). One goroutine owns it; another waits for the
// processes and sends what it sees to events.
type child struct {
	// pid is COMMAND's process and the number of its group.
	pid   int
	guard *guard
	tty   *terminal
	// events has every change of state, and is closed when COMMAND and the
	// guard have both ended.
	events chan event
	// reaped is set by the owner once it has seen the end of COMMAND: from
	// then on pid may be somebody else's.
	reaped bool
}

// event is a change of state that wait4(2) reported.
type event struct {
	// ofGuard tells the guard process from COMMAND.
	ofGuard bool
	status  syscall.WaitStatus
}

// start runs the file path as COMMAND. Stdin, stdout and stderr are passed on
// as they are, and so is every other descriptor this process inherited. tty is
// told of the new group, and the guard of the deadline.
func start(path string, argv, env []string, tty *terminal, deadline time.Time) (*child, *outcome) {
	c := &child{tty: tty, events: make(chan event, 16)}
	started := make(chan *outcome)
	go c.live(path, argv, env, deadline, started)
	if end := <-started; end != nil {
		return nil, end
	}
	return c, nil
}

// live starts both processes and waits for them.
func (c *child) live(path string, argv, env []string, deadline time.Time, started chan<- *outcome) {
	// On Linux a process is killed with its parent when the *thread* that
	// forked it ends (prctl(2), PR_SET_PDEATHSIG): this thread is kept for as
	// long as COMMAND lives, and ends with this goroutine.
	runtime.LockOSThread()
	defer close(c.events)
	adoptOrphans()

	// The guard is first: from its first instruction on, COMMAND has one.
	guard, err := startGuard()
	if err != nil {
		started <- &outcome{code: exitSystem, err: fmt.Errorf("cannot start the guard process: %w", err)}
		return
	}
	c.guard = guard
	guard.extend(deadline)
	// Not os/exec: taking os.Stdin's descriptor would turn off O_NONBLOCK on
	// a file description that is shared with processes we know nothing of.
	c.pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{0, 1, 2},
		Sys:   commandAttr(),
	})
	if err != nil {
		guard.release()
		waitFor(guard.pid)
		started <- startFailure(path, err)
		return
	}
	guard.watch(c.pid)
	c.tty.start(c.pid)
	started <- nil

	for ended := 0; ended < 2; {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return // ECHILD: cannot be, both are ours and nobody else waits
		case pid != c.pid && pid != guard.pid:
			continue // an orphan that was adopted
		}
		if status.Exited() || status.Signaled() {
			ended++
		}
		c.events <- event{ofGuard: pid == guard.pid, status: status}
	}
}

func waitFor(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// startFailure sorts the errors of execve(2) as shells do.
func startFailure(path string, err error) *outcome {
	end := &outcome{code: exitNotExec, err: fmt.Errorf("cannot execute %s: %w", path, err)}
	switch {
	case errors.Is(err, syscall.ENOENT):
		end.code = exitNotFound
		end.hints = []string{"the interpreter in its first line, or its dynamic loader, is missing"}
	case errors.Is(err, syscall.ENOEXEC):
		end.hints = []string{"a script needs a first line such as #!/bin/sh"}
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		end.code = exitSystem
	}
	return end
}

// signal sends sig to COMMAND's process group.
func (c *child) signal(sig syscall.Signal) {
	if c.reaped {
		return
	}
	// EPERM: none of the group's processes is ours to signal (setuid). ESRCH:
	// COMMAND has ended a moment ago, which an event will tell, or it has left
	// its group.
	if err := syscall.Kill(-c.pid, sig); err == syscall.ESRCH {
		_ = syscall.Kill(c.pid, sig)
	}
}

// kill sends SIGKILL to the group and, where they can be found, to the
// processes that COMMAND started and that left the group: an interactive
// shell puts each job into a group of its own.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	left, err := descendants(syscall.Getpid(), c.guard.pid)
	if err != nil && c.reaped {
		// The group is all we know. While it has a member, its number is not
		// given to another process.
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	}
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// gone reports whether COMMAND and everything it started have ended.
func (c *child) gone() bool {
	left, err := descendants(syscall.Getpid(), c.guard.pid)
	if err != nil {
		return c.reaped && syscall.Kill(-c.pid, 0) == syscall.ESRCH
	}
	return c.reaped && len(left) == 0
}

// finish lets the guard go and reports whether it had killed COMMAND because
// the deadline it knew of had passed. COMMAND has ended.
func (c *child) finish() (killed bool) {
	c.guard.release()
	// It has nothing to do any more; somebody may have stopped it.
	stuck := time.AfterFunc(time.Second, func() { _ = syscall.Kill(c.guard.pid, syscall.SIGKILL) })
	defer stuck.Stop()
	for ev := range c.events {
		if ev.ofGuard {
			killed = ev.status.ExitStatus() == exitLost
		}
	}
	return killed
}

// statusCode is what a shell would make of the status.
func statusCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// processExists reports whether pid is a process, ours or not.
func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}
