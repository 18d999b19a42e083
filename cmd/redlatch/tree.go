//go:build unix

package main

import (
	"syscall"
	"time"
)

// tree is all that COMMAND has started, as seen from a process above it, and
// COMMAND itself. Every process that leaves children behind there hands them to
// one that looks (adoptOrphans), so that all are found below root.
type tree struct {
	// root is the process below which they are: this one.
	root int
	// spares tells processes that are no part of it: ours, which are descended
	// into, and strangers, which are not.
	spares func(pid int) (spared, descend bool)
	// group returns the group that COMMAND leads, 0 if it leads none or if it is
	// gone. Where walk fails, it is all that can be killed.
	group func() int

	// killed were sent SIGKILL by an earlier pass.
	killed map[int]bool
}

// found is what a pass came across.
type found struct {
	// dying have been killed and have not ended yet; fresh is how many of them
	// no earlier pass has seen.
	dying, fresh int
	// refused are those that this process may not send signals to.
	refused []int
}

// members calls visit with each process, until it has seen all there are.
func (t *tree) members(visit func(pid int)) error {
	return walk(t.root, func(pid int) bool {
		spared, descend := t.spares(pid)
		if !spared {
			visit(pid)
		}
		return descend
	})
}

// pass sends SIGKILL to all that it finds. A process that leaves a new one in its
// place again and again may slip through a pass, but not through many.
func (t *tree) pass() found {
	var now found
	if t.killed == nil {
		t.killed = make(map[int]bool)
	}
	err := t.members(func(pid int) {
		switch err := syscall.Kill(pid, syscall.SIGKILL); {
		case err == syscall.ESRCH, t.killed[pid] && hasEnded(pid):
		case err != nil:
			if !hasEnded(pid) {
				now.refused = append(now.refused, pid)
			}
		default:
			now.dying++
			if !t.killed[pid] {
				now.fresh++
				t.killed[pid] = true
				raise(pid)
			}
		}
	})
	if group := t.group(); err != nil && group > 1 {
		switch err := syscall.Kill(-group, syscall.SIGKILL); err {
		case nil:
			now.dying++
		case syscall.EPERM:
			now.refused = append(now.refused, group)
		}
	}
	return now
}

// unbroken is for how long passes follow each other without a break after one that
// came across processes that none before it knew. On a machine that is busy every
// break may last as long as all the others' turns, and what starts itself anew goes
// on meanwhile; in this time there are dozens of passes.
const unbroken = 5 * time.Millisecond

// certain is how many passes in succession have to come across nobody. The kernel does
// not promise that a list of children has one that came while another ended.
const certain = 3

// clear makes passes until all that can be killed has ended, or until limit has
// passed.
func (t *tree) clear(limit time.Duration) found {
	begin := time.Now()
	fresh := begin
	none := 0
	for pause := time.Millisecond / 4; ; {
		now := t.pass()
		if now.dying == 0 {
			if none++; none == certain {
				return now
			}
			continue
		}
		none = 0
		if time.Since(begin) > limit {
			return now
		}
		if now.fresh > 0 {
			fresh = time.Now()
		}
		if time.Since(fresh) > unbroken {
			time.Sleep(pause)
			pause = min(2*pause, poll)
		}
	}
}

// refused returns those that this process may not send signals to, and sends
// none.
func (t *tree) refused() []int {
	var pids []int
	_ = t.members(func(pid int) {
		if syscall.Kill(pid, 0) == syscall.EPERM && !hasEnded(pid) {
			pids = append(pids, pid)
		}
	})
	return pids
}

// signal sends sig to those in a group and to leader, each once. It looks again
// for those that were started meanwhile, a few times: some programs answer a
// signal by starting others.
func (t *tree) signal(group, leader int, sig syscall.Signal) {
	sent := make(map[int]bool)
	fresh := true
	for look := 0; fresh && look < 5; look++ {
		fresh = false
		_ = t.members(func(pid int) {
			if sent[pid] {
				return
			}
			if theirs, err := syscall.Getpgid(pid); pid == leader || err == nil && theirs == group {
				sent[pid], fresh = true, true
				_ = syscall.Kill(pid, sig)
			}
		})
	}
}
