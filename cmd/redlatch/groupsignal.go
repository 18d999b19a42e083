//go:build unix

package main

import (
	"os"
	"slices"
	"syscall"
	"time"
)

// Ctrl-C, Ctrl-Z, kill %1 and timeout(1) send a signal to a whole process group.
// COMMAND, which is in the group of redlatch run, has then got the signal and must
// not get it again. But if a signal was sent to redlatch run alone, redlatch run must
// pass it on. Nothing in the signal tells the two cases apart. But the guard is in the
// group as well: if it has got the signal, too, the signal was sent to the group.

// groupQuestion is the signal that asks the guard to count the signals it has got.
// The kernel delivers signals with lower numbers first, and on Linux all signals that
// are passed on have lower numbers; one thread of the guard gets them all
// (startGuards). When the kernel sends a signal to a group, it begins with the
// youngest process, so the guard gets it before redlatch run.
const groupQuestion = syscall.SIGIO

// groupAnswer limits the wait for the guard, which may be stopped.
const groupAnswer = time.Second

// count counts signals, in the guard.
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

// ask asks the guard to look at the deadline, and to count. It reports whether it
// could ask: not if the guard has ended or is not ready yet.
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

// awaitCount waits until the guard is ready and has counted the signals that it has got,
// for limit at most, and reports whether it has.
func (g *guards) awaitCount(limit time.Duration) bool {
	question, asked := g.ask()
	for over := time.After(min(limit, groupAnswer)); !asked || int32(g.shared.answered.Load()-question) < 0; {
		select {
		case <-time.After(time.Millisecond / 5):
			if !asked {
				question, asked = g.ask()
			}
		case <-over:
			return false
		case <-g.ended:
			return false
		}
	}
	return true
}

// sentToGroup reports whether a signal that this process has got was sent to its
// whole process group. It waits for the guard, for limit at most.
func (c *child) sentToGroup(sig os.Signal, limit time.Duration) bool {
	if !c.guards.awaitCount(limit) {
		// If the signal can come from the keyboard, it most likely does.
		return c.tty.isOurs() && slices.Contains(fromKeyboard, sig)
	}
	before := c.counted[sig]
	c.count(sig)
	return c.counted[sig] != before
}

// countEarlier takes in what the guard has counted before COMMAND starts, which COMMAND
// has not got.
func (c *child) countEarlier(limit time.Duration) {
	c.guards.awaitCount(limit)
	for _, sig := range slices.Concat(forwarded, jobControl) {
		c.count(sig)
	}
}

// count takes in the guard's count of sig.
func (c *child) count(sig os.Signal) {
	c.counted[sig] = c.guards.shared.seen[number(sig)%signalCount].Load()
}

// fromKeyboard are the signals that a terminal sends to its foreground group.
var fromKeyboard = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGWINCH}
