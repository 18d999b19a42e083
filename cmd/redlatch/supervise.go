//go:build unix

package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

const (
	// poll is how often the end of a tree of processes is looked for.
	poll = 10 * time.Millisecond
	// patience is how long processes are waited for that SIGKILL does not end:
	// those of another user, or in the kernel.
	patience = 5 * time.Second
)

// supervisor watches COMMAND and the lock. One goroutine runs all of it.
type supervisor struct {
	names string // for people to read
	terms terms

	lock  *redlatch.Lock
	child *child
	tty   *terminal
	sigs  signals
	out   *printer

	// told is the end of validity that the guard knows.
	told time.Time
	// status is how COMMAND ended, once child.reaped is set.
	status syscall.WaitStatus
	// ending is why COMMAND and all it started have to end, and killAt is when
	// SIGKILL is due; killed is when it was first sent, and left is what the last
	// look came across.
	ending         reason
	killAt, killed time.Time
	left           found
	// alone: the guards were killed by this process, which waits for COMMAND in their place.
	alone bool
	// refused are processes that were said to be beyond our reach.
	refused map[int]bool
}

// reason is why COMMAND is ended before it ends by itself, in the order in
// which one overrides another.
type reason uint8

const (
	notEnding reason = iota
	ranTooLong
	parentKilled
	lockLost
)

// supervise waits for COMMAND to end, or ends it, and returns how that went, and
// whether the lock was lost before. When it returns, COMMAND is dead; when COMMAND
// had to be ended, so is everything that it started, but for what was said to live
// on.
func supervise(r *runCmd, lock *redlatch.Lock, child *child, sigs signals, out *printer) (end *outcome, lost bool) {
	s := &supervisor{
		names:   r.quoted(),
		terms:   r.terms(),
		lock:    lock,
		child:   child,
		tty:     child.tty,
		sigs:    sigs,
		out:     out,
		refused: make(map[int]bool),
	}
	for _, ev := range child.early {
		s.changed(ev)
	}
	s.watch(r.MaxRun)
	// In this order: the lock is judged when COMMAND is known to have ended.
	lost = s.lock.Err() != nil
	s.tty.takeBack()
	child.finish()
	if lost || s.ending == lockLost || child.guards.shared.expired.Load() {
		return &outcome{code: exitLost}, true
	}
	return s.result(), false
}

// result is how COMMAND ended while the lock was held.
func (s *supervisor) result() *outcome {
	byKill := s.status.Signaled() && s.status.Signal() == syscall.SIGKILL
	switch {
	case !s.child.reaped: // what ended its parent left it to nobody
		return &outcome{code: exitSystem}
	case s.ending == ranTooLong && (!byKill || s.killed.IsZero()):
		return &outcome{code: exitMaxRun}
	}
	end := &outcome{code: statusCode(s.status)}
	if s.status.Signaled() && s.ending == notEnding {
		end.signal = s.status.Signal()
	}
	return end
}

func (s *supervisor) watch(maxRun time.Duration) {
	lost := s.lock.Context().Done()
	var limit <-chan time.Time
	if maxRun > 0 {
		limit = time.After(maxRun)
	}
	next := time.NewTimer(s.check())
	for !s.done() {
		select {
		case ev := <-s.child.events:
			s.changed(ev)
		case sig := <-s.sigs:
			s.forward(sig)
		case <-lost:
			lost = nil
			s.lose(s.lock.Err())
		case <-limit:
			s.out.warn("COMMAND runs for longer than --max-run %v", maxRun)
			s.end(ranTooLong, time.Now().Add(s.terms.grace))
		case <-next.C:
		}
		next.Reset(s.check())
	}
}

func (s *supervisor) done() bool {
	if s.ending == notEnding {
		return s.child.reaped
	}
	if s.killed.IsZero() {
		return s.child.reaped && s.child.gone()
	}
	switch {
	case s.left.dying > 0 && time.Since(s.killed) < patience:
		return false
	case len(s.left.refused) > 0 && s.ending != ranTooLong:
		return true // it was said
	case s.left.dying == 0 && len(s.left.refused) == 0:
		if !s.child.reaped && time.Since(s.killed) >= time.Second {
			// Somebody has stopped COMMAND's parent, which would wait for it, or
			// the machine is too busy to give it a turn.
			s.alone = true
			s.child.killGuards()
		}
		// Where orphans cannot be adopted, init waits for it.
		return s.child.reaped || time.Since(s.killed) >= patience
	case s.child.reaped && time.Since(s.killed) >= patience:
		s.out.warn("processes that COMMAND started are still there: SIGKILL did not end them")
		return true
	}
	return false
}

// check does what the clock asks for, and returns when to look again.
func (s *supervisor) check() time.Duration {
	until := s.lock.Until()
	if until != s.told {
		s.child.guards.extend(s.terms.guardAt(until))
		s.told = until
	}
	last := time.Until(s.terms.killAt(until))
	if last <= 0 && s.ending != lockLost {
		// The library said nothing yet: this process was stopped until now.
		s.lose(s.lock.Err())
	}
	if s.ending == notEnding {
		// A renewal moves the end on. Looking again halfway to it tells the
		// guard in time, in a handful of looks a TTL.
		return max(last/2, time.Millisecond)
	}
	left := time.Until(s.killAt)
	if left <= 0 {
		if s.killed.IsZero() {
			s.killed = time.Now()
		}
		s.left = s.child.tree.clear(poll)
		s.sayRefused(s.left.refused)
		return poll
	}
	return min(left, poll)
}

// lose ends COMMAND because of the lock. That it was lost is said once, whoever
// notices it after the first.
func (s *supervisor) lose(why error) {
	if why == nil {
		why = fmt.Errorf("%w: %s", redlatch.ErrLost, s.names)
	} else if len(s.lock.Names()) > 1 {
		why = fmt.Errorf("%w; it was the lock of %s", why, s.names)
	}
	if s.ending != lockLost {
		s.out.warn("%v", why)
	}
	killAt := time.Now().Add(s.terms.grace)
	if last := s.terms.killAt(s.lock.Until()); last.Before(killAt) {
		killAt = last
	}
	s.end(lockLost, killAt)
}

// end asks COMMAND's group to end, and has all that is left killed at killAt.
// A later call can only bring that forward.
func (s *supervisor) end(why reason, killAt time.Time) {
	first := s.ending == notEnding
	s.ending = max(s.ending, why)
	if first || killAt.Before(s.killAt) {
		s.killAt = killAt
	}
	if left := time.Until(s.killAt); left <= 0 {
		s.out.say("killing COMMAND")
	} else if first {
		s.out.say("ending COMMAND: SIGTERM, and SIGKILL in %v", short(left))
		s.child.signal(syscall.SIGTERM)
		s.child.signal(syscall.SIGCONT) // a stopped process would not see it
	}
	if first {
		s.sayRefused(s.child.tree.refused())
	}
}

// sayRefused says which processes live on, each once.
func (s *supervisor) sayRefused(pids []int) {
	for _, pid := range pids {
		if !s.refused[pid] {
			s.refused[pid] = true
			s.out.warn("%s", refusal(pid))
		}
	}
}

// changed takes note of a change of state.
func (s *supervisor) changed(ev event) {
	switch {
	case s.child.reaped, ev.started != 0:
	case s.alone && (ev.of == ofGuard || ev.of == ofParent):
	case ev.of == ofGuard:
		s.out.warn("the guard process has ended (%v): COMMAND's parent process alone kills what COMMAND started if redlatch is killed", describe(ev.status))
	case ev.of == ofParent:
		s.parentEnded()
	case ev.status.Stopped():
		s.stopped(ev.status.StopSignal())
	default:
		s.child.reaped, s.status = true, ev.status
		s.out.detail("COMMAND ended: %s", describe(ev.status))
		if ev.of == ofOrphan && !s.alone {
			s.parentEnded()
		}
		if s.child.guards.shared.expired.Load() {
			s.lose(s.lock.Err())
		}
	}
}

// parentEnded is called when COMMAND's parent has ended. Nobody asked it to: it was
// killed.
func (s *supervisor) parentEnded() {
	if s.ending < parentKilled {
		s.out.warn("COMMAND's parent process has ended, and COMMAND with it")
		s.end(parentKilled, time.Now())
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return signalName(status.Signal())
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}
