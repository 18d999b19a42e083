package sim

import (
	"container/heap"
	"sync"
	"time"
)

// schedule calls what is to happen in a world, in order, on one goroutine. Two
// events of one moment happen in the order in which they were asked for.
type schedule struct {
	world *World
	timer *time.Timer

	mu    sync.Mutex // guards what follows; nothing is called while it is held
	queue happenings
	count int
	armed time.Duration // when the timer fires; 0 when it does not
	ended bool
}

type happening struct {
	at    time.Duration
	count int
	call  func()
}

func newSchedule(w *World) *schedule { return &schedule{world: w} }

// after has call happen d from now.
func (s *schedule) after(d time.Duration, call func()) {
	now := s.world.Now()
	at := now + max(d, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.count++
	heap.Push(&s.queue, happening{at, s.count, call})
	if s.armed == 0 || at < s.armed {
		s.arm(now, at)
	}
}

// arm has the timer fire at at. The caller holds s.mu.
func (s *schedule) arm(now, at time.Duration) {
	s.armed = at
	if s.timer == nil {
		s.timer = time.AfterFunc(at-now, s.ring)
		return
	}
	s.timer.Reset(at - now)
}

// ring calls what is due.
func (s *schedule) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.world.Now()
	for len(s.queue) > 0 && s.queue[0].at <= now {
		h := heap.Pop(&s.queue).(happening)
		s.mu.Unlock()
		h.call()
		s.mu.Lock()
	}
	s.armed = 0
	if len(s.queue) > 0 && !s.ended {
		s.arm(now, s.queue[0].at)
	}
}

// end forgets all that is still to happen.
func (s *schedule) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.queue = nil
	if s.timer != nil {
		s.timer.Stop()
	}
}

// happenings is a heap, the earliest first.
type happenings []happening

func (q happenings) Len() int { return len(q) }

func (q happenings) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].count < q[j].count
}

func (q happenings) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *happenings) Push(x any) { *q = append(*q, x.(happening)) }

func (q *happenings) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = happening{}
	*q = (*q)[:last]
	return h
}
