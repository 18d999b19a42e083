package redlatch

import "time"

// What is known of those who wait for a lock elsewhere. The node that keeps the wait queue says
// with most answers whether there are any; callers here let them in.

// Bounds of contended, in keys and in time.
const (
	maxContended  = 1024
	contendedTime = time.Second
)

// markContended records that others were seen waiting for key.
func (s *queues) markContended(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark(key)
	if q := s.of[key]; q != nil {
		q.remote = true
	}
}

// mark notes key in contended. The caller holds s.mu.
func (s *queues) mark(key string) {
	if len(s.contended) == maxContended {
		clear(s.contended)
	}
	s.contended[key] = time.Now().Add(contendedTime)
}

// clearContended notes that nobody else is waiting for key.
func (s *queues) clearContended(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.contended, key)
}

// hasRemoteWaiters reports that others are known to wait for q's key, so that who contends
// for it is to join them.
func (s *queues) hasRemoteWaiters(q *queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.remote {
		return true
	}
	until, ok := s.contended[q.key]
	return ok && time.Now().Before(until)
}

// maxUnheard is how often in a row a process may hand a lock over inside itself before
// it asks whether others wait: mostly the node that keeps the wait queue says so with an
// attempt, but a slow one is not waited for.
const maxUnheard = 4 * maxTransfers

// mustAsk reports that it is time to ask whether others wait for q's key. The answer is
// to be told.
func (s *queues) mustAsk(q *queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.remote || q.asking || q.transfers < maxUnheard {
		return false
	}
	q.asking = true
	return true
}

// asked notes the answer to who asked whether others wait for q's key.
func (s *queues) asked(q *queue, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.asking = false
	if q.remote = q.remote || others; !q.remote {
		q.transfers = 0
	}
}

// heard notes that the node that keeps the wait queue has answered a hand-over: if others wait,
// it has said so.
func (s *queues) heard(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.remote {
		q.transfers = 0
	}
}
