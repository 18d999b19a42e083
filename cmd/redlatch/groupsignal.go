//go:build unix

package main

import (
	"os"
	"slices"
	"syscall"
	"time"
)

// Ctrl-C, Ctrl-Z, kill %1 and timeout(1) send a signal to a whole process group.
// COMMAND, which is in ours, has it then and must not get it again; one that was
// sent to redlatch run alone it must get from us. Nothing in the signal tells
// these apart. But the guard is in the group as well: what it has also got was
// sent to all.

// groupQuestion is the signal by which the guard is asked to count what it has
// got. The kernel hands out those with lower numbers first, which on Linux are all
// that are passed on; and one thread of the guard gets them all (startGuards). The
// kernel sends to the process of a group first that came last, which is the guard
// before redlatch run.
const groupQuestion = syscall.SIGIO

// groupAnswer bounds the wait for the guard, which may be stopped.
const groupAnswer = time.Second

// count is the guard's side.
func (s *sentinel) count(caught signals) {
	for sig := range caught {
		if sig != groupQuestion {
			s.shared.seen[number(sig)%signalCount].Add(1)
			continue
		}
		s.shared.answered.Store(s.shared.asked.Load())
		select {
		case s.look <- struct{}{}:
		default:
		}
	}
}

// ask has the guard look at the deadline, and count; a stopped one, or one that
// does not run yet, is not asked.
func (g *guards) ask() (number uint32, asked bool) {
	select {
	case <-g.ended:
		return 0, false
	default:
	}
	if !g.shared.ready.Load() {
		return 0, false
	}
	number = g.shared.asked.Add(1)
	return number, syscall.Kill(g.pid, groupQuestion) == nil
}

// sentToGroup reports whether a signal that has come in was sent to all of our
// process group. It waits for the guard, for limit at most.
func (c *child) sentToGroup(sig os.Signal, limit time.Duration) bool {
	question, asked := c.guards.ask()
	for over := time.After(min(limit, groupAnswer)); asked && int32(c.guards.shared.answered.Load()-question) < 0; {
		select {
		case <-time.After(time.Millisecond / 5):
		case <-over:
			asked = false
		case <-c.guards.ended:
			asked = false
		}
	}
	if !asked {
		// Most likely it came from the keyboard, if it may have.
		return c.tty.isOurs() && slices.Contains(fromKeyboard, sig)
	}
	now := c.guards.shared.seen[number(sig)%signalCount].Load()
	sent := now != c.counted[sig]
	c.counted[sig] = now
	return sent
}

// fromKeyboard are signals that a terminal sends to its foreground group.
var fromKeyboard = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGWINCH}
