package redlatch

import "time"

// What is known of those who wait for a lock elsewhere. The node that keeps the line says
// with most answers whether there are any; callers here let them in.

// Bounds of crowded, in records and in time.
const (
	crowdRecords = 1024
	crowdTime    = time.Second
)

// crowd notes that others were seen waiting for record.
func (s *queues) crowd(record string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark(record)
	if q := s.of[record]; q != nil {
		q.others = true
	}
}

// mark notes record in crowded. The caller holds s.mu.
func (s *queues) mark(record string) {
	if len(s.crowded) == crowdRecords {
		clear(s.crowded)
	}
	s.crowded[record] = time.Now().Add(crowdTime)
}

// cleared notes that nobody else is waiting for record.
func (s *queues) cleared(record string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.crowded, record)
}

// standsInLine reports that others are known to wait for q's record, so that who contends
// for it is to join them.
func (s *queues) standsInLine(q *queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.others {
		return true
	}
	until, ok := s.crowded[q.record]
	return ok && time.Now().Before(until)
}

// maxUnheard is how often in a row a process may hand a lock over inside itself before
// it asks whether others wait: mostly the node that keeps the line says so with an
// attempt, but a slow one is not waited for.
const maxUnheard = 4 * maxHandOvers

// unheard reports that it is time to ask whether others wait for q's record. The answer is
// to be told.
func (s *queues) unheard(q *queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.others || q.asking || q.handed < maxUnheard {
		return false
	}
	q.asking = true
	return true
}

// asked notes the answer to who asked whether others wait for q's record.
func (s *queues) asked(q *queue, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.asking = false
	if q.others = q.others || others; !q.others {
		q.handed = 0
	}
}

// heard notes that the node that keeps the line has answered a hand-over: if others wait,
// it has said so.
func (s *queues) heard(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.others {
		q.handed = 0
	}
}
