//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// child is COMMAND: its process, what it started, and the guards that outlive this
// process (guard.go). One goroutine owns it. Other goroutines wait for processes and
// send what they see to events.
type child struct {
	// pid is COMMAND's process. group is the process group that COMMAND leads, or 0
	// if it is in this process's group.
	pid, group int
	guards     *guards
	tree       *tree
	tty        *terminal
	// ordered: this process has told the guards to start COMMAND.
	ordered bool
	// events has every change of state until finished is closed. heard is closed
	// when no guard is left.
	events          chan event
	finished, heard chan struct{}
	// early are events that came before the news that COMMAND had started.
	early []event
	// reaped is set by the owner once it has seen the end of COMMAND: from
	// then on pid may be the number of another process.
	reaped bool
	// counted has, for each signal, the guard's count when COMMAND was to start, or when
	// a signal of that kind was last found to have been sent to the whole group.
	counted map[os.Signal]uint32
}

// event is a change of state.
type event struct {
	of     source
	status syscall.WaitStatus
	// started is COMMAND's pid once it has started. failed is the reason why it did not
	// start.
	started int
	failed  error
}

// source says whose state has changed.
type source uint8

const (
	ofCommand source = iota
	// ofOrphan is COMMAND after the end of its parent. The news of that end may come
	// later.
	ofOrphan
	ofParent
	ofGuard
)

// newChild starts the guards. start starts COMMAND later.
func newChild() (*child, error) {
	// A shell that became this process by exec may have left children of its own. This process will
	// adopt what they have started, when they end.
	strangers := make(map[int]string)
	_ = walk(os.Getpid(), func(pid int) bool {
		strangers[pid] = birth(pid)
		return true
	})
	adoptOrphans()
	guards, err := startGuards()
	if err != nil {
		return nil, &outcome{code: exitSystem, err: fmt.Errorf("cannot start the guard process: %w", err)}
	}
	return childOf(guards, strangers), nil
}

// childOf returns a child that guards are to start. strangers are processes that are not COMMAND's.
func childOf(guards *guards, strangers map[int]string) *child {
	c := &child{
		guards:   guards,
		events:   make(chan event, 16),
		finished: make(chan struct{}),
		heard:    make(chan struct{}),
		counted:  make(map[os.Signal]uint32),
	}
	c.tree = &tree{
		root: os.Getpid(),
		spares: func(pid int) (spared, descend bool) {
			if born, known := strangers[pid]; known && born == birth(pid) {
				return true, false
			}
			return pid == guards.pid || pid == int(guards.shared.parent.Load()), true
		},
		group: func() int { return c.group },
	}
	return c
}

// abandon releases the guards if they were never told to start COMMAND, and waits for
// them to end. Otherwise it does nothing.
func (c *child) abandon() {
	if c.ordered {
		return
	}
	c.guards.release()
	stuck := time.AfterFunc(time.Second, c.killGuards) // in case somebody has stopped one
	waitFor(c.guards.pid)
	stuck.Stop()
	c.guards.close()
}

// tell sends an event to the owner. After finish it drops the event.
func (c *child) tell(ev event) {
	select {
	case c.events <- ev:
	case <-c.finished:
	}
}

// hear sends what the guards report to the owner.
func (c *child) hear() {
	c.guards.readReports(func(r guardReport) {
		switch r.Kind {
		case commandStarted:
			c.tell(event{started: int(r.Value)})
		case commandFailed:
			c.tell(event{failed: syscall.Errno(r.Value)})
		case commandChanged:
			c.tell(event{of: ofCommand, status: syscall.WaitStatus(r.Value)})
		case orphanChanged:
			c.tell(event{of: ofOrphan, status: syscall.WaitStatus(r.Value)})
		case parentEnded:
			c.tell(event{of: ofParent, status: syscall.WaitStatus(r.Value)})
		}
	})
}

// wait waits for the guard, and for all processes that this process adopts when guards
// are killed, until none is left. Nobody else would wait for them, and they would stay
// as zombies.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		over := status.Exited() || status.Signaled()
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // ECHILD: no child is left that could leave another behind
		case pid == c.guards.pid && over:
			close(c.guards.ended)
			c.tell(event{of: ofGuard, status: status})
		case pid == int(c.guards.shared.parent.Load()) && over:
			c.tell(event{of: ofParent, status: status})
		case pid == int(c.guards.shared.command.Load()):
			c.tell(event{of: ofOrphan, status: status})
		}
	}
}

// start runs the file path as COMMAND, in a group of its own or in this process's
// group, under a lock that ends when over is closed, and tells the guards its deadline,
// which renewals move on. COMMAND inherits stdin, stdout and stderr as they are, and
// every other descriptor that this process inherited. start tells tty about a new group.
func (c *child) start(path string, argv, env []string, ownGroup bool, tty *terminal, deadline func() clock.Instant, over <-chan struct{}) *outcome {
	c.tty, c.ordered = tty, true
	go func() {
		defer close(c.heard)
		c.hear()
	}()
	go c.wait()
	left := c.extend(deadline)
	c.countEarlier(left) // this also has the guards look at the deadline
	next := time.NewTimer(left)
	defer next.Stop()
	c.guards.order(order{path: path, argv: argv, env: env, ownGroup: ownGroup})
	for heard := c.heard; ; {
		if heard == nil && len(c.events) == 0 {
			return c.notStarted("the guard processes have ended")
		}
		select {
		case <-heard:
			heard = nil
		case ev := <-c.events:
			switch {
			case ev.started != 0:
				c.started(ev.started, ownGroup)
				return nil
			case ev.failed != nil:
				c.finish()
				return startFailure(path, ev.failed)
			case ev.of == ofParent && c.guards.shared.command.Load() != 0: // COMMAND's parent had no time to report it
				c.early = append(c.early, ev)
				c.started(int(c.guards.shared.command.Load()), ownGroup)
				return nil
			case ev.of == ofParent:
				return c.notStarted("its parent process has ended (" + describe(ev.status) + ")")
			default: // COMMAND's parent may have started it
				c.early = append(c.early, ev)
			}
		case <-next.C:
			next.Reset(c.extend(deadline))
		case <-over:
			if pid := int(c.guards.shared.command.Load()); pid != 0 {
				c.started(pid, ownGroup) // the event for this is on its way
				return nil
			}
			c.tree.clear(patience)
			c.finish()
			c.tree.clear(patience) // COMMAND's parent may have started it meanwhile, and died before what it started
			return &outcome{code: exitLost, err: errNotInTime}
		}
	}
}

// extend tells the guards the deadline, and returns half of what is left until then, when it is
// to be called again.
func (c *child) extend(deadline func() clock.Instant) (next time.Duration) {
	until := deadline()
	c.guards.extend(until)
	return max(time.Until(until.Mono)/2, time.Millisecond)
}

var errNotInTime = errors.New("the lock was lost before COMMAND had started")

func (c *child) started(pid int, ownGroup bool) {
	c.pid = pid
	if ownGroup {
		c.group = pid
	}
	c.tty.start(c.group)
}

// notStarted ends a start if no guard will report about it any more.
func (c *child) notStarted(why string) *outcome {
	c.tree.clear(patience)
	c.finish()
	return &outcome{code: exitSystem, err: fmt.Errorf("cannot start COMMAND: %s", why)}
}

// startFailure turns an error of execve(2) into an exit code as shells do. ECANCELED comes from
// the guard: the lock had ended before COMMAND could start.
func startFailure(path string, err error) *outcome {
	if errors.Is(err, syscall.ECANCELED) {
		return &outcome{code: exitLost, err: errNotInTime}
	}
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

// signal sends sig to COMMAND and to what it started in its group. If that is this
// process's group, no other process in it gets sig.
func (c *child) signal(sig syscall.Signal) {
	switch {
	case c.group == 0:
		leader := c.pid
		if c.reaped {
			leader = 0
		}
		c.tree.signal(syscall.Getpgrp(), leader, sig)
	case c.reaped:
	default:
		// ESRCH: COMMAND has just ended, which an event will report, or it has
		// left its group.
		if err := syscall.Kill(-c.group, sig); err == syscall.ESRCH {
			_ = syscall.Kill(c.pid, sig)
		}
	}
}

// gone reports whether COMMAND and everything it started have ended.
func (c *child) gone() bool {
	if !c.reaped {
		return false
	}
	for range certain {
		alive := false
		if err := c.tree.members(func(pid int) { alive = alive || !hasEnded(pid) }); err != nil {
			return syscall.Kill(-c.group, 0) == syscall.ESRCH
		}
		if alive {
			return false
		}
	}
	return true
}

// finish releases the guards when COMMAND has ended, and waits for them to end.
func (c *child) finish() {
	c.guards.shared.released.Store(true)
	c.finishKilling()
}

// finishKilling has the guards kill what is left of COMMAND, and waits for them to end. This process may have
// failed to find it, such as for want of descriptors.
func (c *child) finishKilling() {
	close(c.finished)
	c.guards.life.Close()
	// They end at once, unless somebody has stopped one.
	for range 2 {
		select {
		case <-c.heard:
			<-c.guards.ended
			c.guards.reports.Close()
			return
		case <-time.After(time.Second):
		}
		c.killGuards()
	}
}

// killGuards kills the guards, so that this process has to wait for COMMAND itself.
func (c *child) killGuards() {
	_ = walk(os.Getpid(), func(pid int) bool {
		spared, descend := c.tree.spares(pid)
		if spared && descend {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return descend
	})
}

// statusCode is the exit code that a shell would make of the status.
func statusCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// processExists reports whether pid is a process of this or of another user.
func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}
