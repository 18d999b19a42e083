//go:build unix

package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

const (
	// poll is the interval of the looks at a tree of processes that is to end.
	poll = 10 * time.Millisecond
	// patience is how long to wait for processes that SIGKILL does not end: those
	// of another user, or in the kernel.
	patience = 5 * time.Second
)

// supervisor watches COMMAND and the lock. One goroutine calls all its methods.
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
	// status is how COMMAND ended. It is set once child.reaped is set.
	status syscall.WaitStatus
	// ending is why COMMAND and all that it started have to end. killAt is when
	// SIGKILL is due, and killed is when it was first sent. left is what the last
	// look found.
	ending         reason
	killAt, killed time.Time
	left           found
	// alone: this process has killed the guards, and waits for COMMAND in their place.
	alone bool
	// interrupted: a signal has come that ends the hold of --min-hold.
	interrupted bool
	// refused are the processes about which sayRefused has warned.
	refused map[int]bool
}

// reason is why redlatch ends COMMAND. A larger one overrides a smaller one.
type reason uint8

const (
	notEnding reason = iota
	ranTooLong
	parentKilled
	lockLost
)

// supervise waits for COMMAND to end, or ends it. It returns the outcome, and whether
// the lock was lost before. When it returns, COMMAND is dead. If redlatch had to end
// COMMAND, everything that COMMAND started is dead, too, except for processes that a
// warning has named.
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
	// In this order: the state of the lock counts once COMMAND has ended.
	lost = s.lock.Err() != nil
	s.tty.takeBack()
	if s.ending == notEnding || len(s.left.refused) > 0 {
		child.finish()
	} else {
		child.finishKilling()
	}
	if lost || s.ending == lockLost || child.guards.shared.expired.Load() {
		return &outcome{code: exitLost}, true
	}
	end = s.result()
	end.interrupted = s.interrupted
	return end, false
}

// result is the outcome of a COMMAND that ended while the lock was held.
func (s *supervisor) result() *outcome {
	byKill := s.status.Signaled() && s.status.Signal() == syscall.SIGKILL
	switch {
	case !s.child.reaped && s.alone && s.ending == ranTooLong:
		// This process has killed the parent, which may have learned how COMMAND had ended but not told it yet.
		return &outcome{code: exitSignal + int(syscall.SIGKILL)}
	case !s.child.reaped: // its parent was killed, and no process could wait for it
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
			s.out.warn("COMMAND has run for longer than --max-run %v", maxRun)
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
		return true // a warning has named them
	case s.left.dying == 0 && len(s.left.refused) == 0:
		if !s.child.reaped && time.Since(s.killed) >= time.Second {
			// Somebody has stopped COMMAND's parent, which has to wait for COMMAND,
			// or the machine is too busy to let it run.
			s.alone = true
			s.child.killGuards()
		}
		// On systems where orphans cannot be adopted, init waits for COMMAND.
		return s.child.reaped || time.Since(s.killed) >= patience
	case s.child.reaped && time.Since(s.killed) >= patience:
		s.out.warn("processes that COMMAND started are still running: SIGKILL did not end them")
		return true
	}
	return false
}

// check does what is due, and returns when to look again.
func (s *supervisor) check() time.Duration {
	until := s.lock.Until()
	if until != s.told {
		s.child.guards.extend(s.terms.guardAt(s.lock))
		s.told = until
	}
	last := time.Until(s.terms.killAt(until))
	if last <= 0 && s.ending != lockLost {
		// The library has not reported it yet: this process was stopped until now.
		s.lose(s.lock.Err())
	}
	if s.ending == notEnding {
		// A renewal moves the end on. If this process looks again halfway to the
		// end, the guard learns of the new one in time, and a handful of looks
		// per TTL is enough.
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

// lose ends COMMAND because the lock was lost. It says so once, even if more than one
// part of this program notices the loss.
func (s *supervisor) lose(why error) {
	if why == nil {
		why = fmt.Errorf("%w: %s", redlatch.ErrLost, s.names)
	} else if len(s.lock.Names()) > 1 {
		why = fmt.Errorf("%w; it was the lock of %s", why, s.names)
	}
	if s.ending != lockLost {
		s.out.warn("%s", inFlags(why.Error()))
	}
	killAt := time.Now().Add(s.terms.grace)
	if last := s.terms.killAt(s.lock.Until()); last.Before(killAt) {
		killAt = last
	}
	s.end(lockLost, killAt)
}

// end asks COMMAND's group to end, and sets killAt, when all that is left is killed.
// A later call can only bring that time forward.
func (s *supervisor) end(why reason, killAt time.Time) {
	first := s.ending == notEnding
	s.ending = max(s.ending, why)
	if first || killAt.Before(s.killAt) {
		s.killAt = killAt
	}
	left := time.Until(s.killAt)
	switch {
	case left <= 0 && s.killed.IsZero():
		s.out.say("killing COMMAND")
	case left > 0 && first:
		s.out.say("ending COMMAND: SIGTERM, and SIGKILL in %v", short(left))
		s.child.signal(syscall.SIGTERM)
		s.child.signal(syscall.SIGCONT) // a stopped process would not get the SIGTERM
	}
	if first {
		s.sayRefused(s.child.tree.refused())
	}
}

// sayRefused warns about processes that cannot be killed, once about each.
func (s *supervisor) sayRefused(pids []int) {
	for _, pid := range pids {
		if !s.refused[pid] {
			s.refused[pid] = true
			s.out.warn("%s", refusal(pid))
		}
	}
}

// changed handles a change of state.
func (s *supervisor) changed(ev event) {
	switch {
	case s.child.reaped, ev.started != 0:
	case s.alone && (ev.of == ofGuard || ev.of == ofParent):
	case ev.of == ofGuard:
		s.out.warn("the guard process has ended (%v): if redlatch is killed, only COMMAND's parent process kills what COMMAND started", describe(ev.status))
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

// parentEnded is called when COMMAND's parent has ended. It was killed, as it does not
// end by itself.
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
