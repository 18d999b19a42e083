package clock

import (
	"container/heap"
	"sync"
	"time"
)

// Alarms is a Clock that keeps all its timers behind one timer of the underlying clock. Nearly
// every alarm of a lock is stopped before it rings. Setting a runtime timer that becomes the
// earliest wakes up a thread; here an alarm that is not the earliest only costs a place in a heap.
type Alarms struct {
	Clock
	// origin is the time from which alarms are counted, on the monotonic clock.
	origin time.Time

	mu    sync.Mutex // guards what follows; while it is held only the clock and the timer are called
	queue alarmQueue
	timer Timer
	// armed: timer will ring at rings.
	armed bool
	rings time.Duration
}

// NewAlarms returns the clock c with its timers gathered, or c itself if it is an *Alarms.
func NewAlarms(c Clock) *Alarms {
	if alarms, ok := c.(*Alarms); ok {
		return alarms
	}
	return &Alarms{Clock: c, origin: c.Mono()}
}

// Ringer is what an Alarm calls. Ring must not block: all alarms that are due are rung one after
// the other.
type Ringer interface{ Ring() }

// Alarm is one pending call. Its zero value is no call. It is a field of what it rings for, which
// saves an allocation, and must not be copied. Once it is set, its methods are safe for concurrent
// use.
type Alarm struct {
	owner *Alarms
	at    time.Duration // since the owner's origin
	call  Ringer
	place int // in the queue, from 1 on; 0 when not there
}

// Set makes the alarm ring r after d. The alarm must not be pending.
func (s *Alarms) Set(a *Alarm, d time.Duration, r Ringer) {
	s.SetFrom(a, s.Mono(), d, r)
}

// SetFrom is Set for a caller that has read the clock: r rings d after from, on the monotonic clock. If
// that is past, it rings at once.
func (s *Alarms) SetFrom(a *Alarm, from time.Time, d time.Duration, r Ringer) {
	a.owner, a.call = s, r
	a.reset(from, d)
}

// ringerFunc makes a Ringer of a function.
type ringerFunc func()

func (f ringerFunc) Ring() { go f() }

// AfterFunc calls f on a goroutine of its own after d.
func (s *Alarms) AfterFunc(d time.Duration, f func()) Timer {
	a := new(Alarm)
	s.Set(a, d, ringerFunc(f))
	return a
}

// Stop implements Timer. It does nothing to an alarm that was never set.
func (a *Alarm) Stop() bool {
	s := a.owner
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := a.place > 0
	if pending {
		heap.Remove(&s.queue, a.place-1)
	}
	return pending
}

// Reset implements Timer. It does nothing to an alarm that was never set.
func (a *Alarm) Reset(d time.Duration) bool {
	return a.owner != nil && a.reset(a.owner.Mono(), d)
}

// ResetSince makes the call happen d after from. If that is past, it happens at once. It does
// nothing to an alarm that was never set.
func (a *Alarm) ResetSince(from time.Time, d time.Duration) bool {
	return a.owner != nil && a.reset(from, d)
}

// reset makes the call happen d after from.
func (a *Alarm) reset(from time.Time, d time.Duration) (pending bool) {
	s := a.owner
	at := from.Sub(s.origin) + d
	s.mu.Lock()
	defer s.mu.Unlock()
	pending = a.place > 0
	a.at = at
	if pending {
		s.queue[a.place-1].at = at
		heap.Fix(&s.queue, a.place-1)
	} else {
		heap.Push(&s.queue, a)
	}
	if !s.armed || at < s.rings {
		s.arm(at)
	}
	return pending
}

// punctual is by how much the timer may be late.
const punctual = time.Millisecond

// arm makes the timer ring at at. The caller holds s.mu. A goroutine that is overtaken after it has
// read the clock sets the timer too late, and has to set it again.
func (s *Alarms) arm(at time.Duration) {
	s.armed, s.rings = true, at
	for now := s.Mono().Sub(s.origin); ; {
		d := at - now
		if s.timer == nil {
			s.timer = s.Clock.AfterFunc(d, s.ring)
		} else {
			s.timer.Reset(d)
		}
		if now = s.Mono().Sub(s.origin); d <= 0 || now+d <= at+punctual {
			return
		}
	}
}

// ring makes the calls that are due. There may be none: the alarm that the timer was armed for may
// have been stopped since.
func (s *Alarms) ring() {
	now := s.Mono().Sub(s.origin)
	for due := s.next(now); due != nil; due = s.next(now) {
		due.Ring()
	}
}

// next takes an alarm that is due at now out of the queue. If there is none it sets the timer and
// returns nil.
func (s *Alarms) next(now time.Duration) Ringer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.queue[0].at <= now {
		return heap.Pop(&s.queue).(*Alarm).call
	}
	s.armed = false
	if len(s.queue) > 0 {
		s.arm(s.queue[0].at)
	}
	return nil
}

// alarmQueue is a heap of alarms, the earliest first. It keeps their times beside them, because
// with very many alarms few are in the processor's cache.
type alarmQueue []queuedAlarm

type queuedAlarm struct {
	at    time.Duration
	alarm *Alarm
}

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at < q[j].at }

func (q alarmQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].alarm.place, q[j].alarm.place = i+1, j+1
}

func (q *alarmQueue) Push(x any) {
	a := x.(*Alarm)
	*q = append(*q, queuedAlarm{a.at, a})
	a.place = len(*q)
}

func (q *alarmQueue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last].alarm
	(*q)[last].alarm = nil
	*q = (*q)[:last]
	a.place = 0
	return a
}
