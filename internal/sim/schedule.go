package sim

import (
	"sync"
	"time"
)

// schedule calls what is to happen in a world, in order, on one goroutine. Two
// events of one moment happen in the order in which they were asked for.
type schedule struct {
	world *World
	timer *time.Timer
	over  chan struct{} // closed when nothing is to happen any more

	mu    sync.Mutex // guards what follows; nothing is called while it is held
	queue happenings
	count int
	armed time.Duration // when the timer fires; 0 when it does not
}

type happening struct {
	at    time.Duration
	count int
	call  func()
}

func newSchedule(w *World) *schedule {
	s := &schedule{world: w, timer: time.NewTimer(0), over: make(chan struct{})}
	go s.run()
	return s
}

// run calls what is due. It is one goroutine for the whole world: a fresh one
// for each event would grow its stack each time.
func (s *schedule) run() {
	for {
		select {
		case <-s.timer.C:
			s.ring()
		case <-s.over:
			s.timer.Stop()
			return
		}
	}
}

// after has call happen d from now.
func (s *schedule) after(d time.Duration, call func()) {
	now := s.world.Now()
	at := now + max(d, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.queue.push(happening{at, s.count, call})
	if s.armed == 0 || at < s.armed {
		s.arm(now, at)
	}
}

// arm has the timer fire at at. The caller holds s.mu.
func (s *schedule) arm(now, at time.Duration) {
	s.armed = at
	s.timer.Reset(at - now)
}

// ring calls what is due.
func (s *schedule) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.world.Now()
	s.armed = now // what is asked for meanwhile arms nothing
	for len(s.queue) > 0 && s.queue[0].at <= now {
		h := s.queue.pop()
		s.mu.Unlock()
		h.call()
		s.mu.Lock()
	}
	s.armed = 0
	if len(s.queue) > 0 {
		s.arm(now, s.queue[0].at)
	}
}

// end forgets all that is still to happen.
func (s *schedule) end() { close(s.over) }

// happenings is a heap, the earliest first.
type happenings []happening

func (q happenings) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].count < q[j].count
}

func (q *happenings) push(h happening) {
	*q = append(*q, h)
	heap := *q
	for i := len(heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !heap.less(i, parent) {
			break
		}
		heap[i], heap[parent] = heap[parent], heap[i]
		i = parent
	}
}

func (q *happenings) pop() happening {
	heap := *q
	first, last := heap[0], len(heap)-1
	heap[0], heap[last] = heap[last], happening{}
	heap = heap[:last]
	*q = heap
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && heap.less(child+1, child) {
			child++
		}
		if !heap.less(child, i) {
			break
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
	return first
}
