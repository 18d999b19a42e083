//go:build unix

package main

import (
	"syscall"
	"time"
)

// tree is COMMAND and all processes that it has started, as a process above COMMAND
// sees them. If a process of the tree ends before its children, a process that looks
// at the tree adopts them (adoptOrphans). So all processes of the tree are below root.
type tree struct {
	// root is this process, below which all the others are.
	root int
	// spares reports whether a process is not part of the tree, and whether to look
	// at its children: yes for redlatch's own processes, no for strangers.
	spares func(pid int) (spared, descend bool)
	// group returns the group that COMMAND leads, or 0 if it leads none or has
	// ended. If walk fails, this group is all that can be killed.
	group func() int

	// killed has the processes that got SIGKILL in an earlier pass.
	killed map[int]bool
}

// found is what a pass has found.
type found struct {
	// dying is the number of processes that were killed and have not ended yet. fresh
	// is how many of them no earlier pass has seen.
	dying, fresh int
	// refused are the processes that this process may not send signals to.
	refused []int
}

// members calls visit with each process of the tree.
func (t *tree) members(visit func(pid int)) error {
	return walk(t.root, func(pid int) bool {
		spared, descend := t.spares(pid)
		if !spared {
			visit(pid)
		}
		return descend
	})
}

// pass sends SIGKILL to all processes that it finds. A program that again and again
// replaces itself by a new process may slip through one pass, but not through many.
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

// unbroken is how long passes follow each other without a break after one that has
// found a new process. On a busy machine a break may last until all other processes
// have run, and programs that replace themselves go on meanwhile. In this time there
// are dozens of passes.
const unbroken = 5 * time.Millisecond

// certain is how many passes in succession have to find no process. The kernel does not
// promise that a list of children has a child that was born while another one ended.
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

// refused returns the processes that this process may not send signals to. It sends
// no signal.
func (t *tree) refused() []int {
	var pids []int
	_ = t.members(func(pid int) {
		if syscall.Kill(pid, 0) == syscall.EPERM && !hasEnded(pid) {
			pids = append(pids, pid)
		}
	})
	return pids
}

// signal sends sig once to leader and to each process of the tree that is in group. It
// looks a few times for processes that were started meanwhile: some programs react to
// a signal by starting others.
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
