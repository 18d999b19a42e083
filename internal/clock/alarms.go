package clock

import (
	"container/heap"
	"sync"
	"time"
)

// Alarms is a Clock that keeps all its timers behind one of the underlying
// clock. Nearly every alarm of a lock is stopped before it rings, and setting a
// runtime timer that becomes the earliest wakes a thread; an alarm that is not
// the earliest here costs a place in a heap.
type Alarms struct {
	Clock

	mu    sync.Mutex // guards what follows; nothing is called while it is held but the timer's Reset
	queue alarmQueue
	timer Timer
	// armed is when timer rings; the zero time when it does not.
	armed time.Time
}

// NewAlarms returns the clock c with its timers gathered.
func NewAlarms(c Clock) *Alarms { return &Alarms{Clock: c} }

// alarm is one pending call.
type alarm struct {
	owner *Alarms
	at    time.Time
	call  func()
	place int // in the queue, -1 when not there
}

// AfterFunc calls f on a goroutine of its own after d.
func (s *Alarms) AfterFunc(d time.Duration, f func()) Timer {
	a := &alarm{owner: s, call: f, place: -1}
	a.Reset(d)
	return a
}

// Stop implements Timer.
func (a *alarm) Stop() bool {
	s := a.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := a.place >= 0
	if pending {
		heap.Remove(&s.queue, a.place)
	}
	return pending
}

// Reset implements Timer.
func (a *alarm) Reset(d time.Duration) bool {
	s := a.owner
	at := s.Mono().Add(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := a.place >= 0
	a.at = at
	if pending {
		heap.Fix(&s.queue, a.place)
	} else {
		heap.Push(&s.queue, a)
	}
	if s.armed.IsZero() || at.Before(s.armed) {
		s.arm(at, d)
	}
	return pending
}

// arm has the timer ring at at, d from now. The caller holds s.mu.
func (s *Alarms) arm(at time.Time, d time.Duration) {
	s.armed = at
	if s.timer == nil {
		s.timer = s.Clock.AfterFunc(d, s.ring)
		return
	}
	s.timer.Reset(d)
}

// ring starts the calls that are due. The earliest alarm may have been stopped
// since the timer was armed for it: then none is.
func (s *Alarms) ring() {
	now := s.Mono()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 && !s.queue[0].at.After(now) {
		go heap.Pop(&s.queue).(*alarm).call()
	}
	s.armed = time.Time{}
	if len(s.queue) > 0 {
		s.arm(s.queue[0].at, s.queue[0].at.Sub(now))
	}
}

// alarmQueue is a heap of alarms, the earliest first.
type alarmQueue []*alarm

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

func (q alarmQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *alarmQueue) Push(x any) {
	a := x.(*alarm)
	a.place = len(*q)
	*q = append(*q, a)
}

func (q *alarmQueue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	a.place = -1
	return a
}
