package waitqueue

import "time"

// What is known of those who wait for a key in other processes. The node that keeps the wait
// queue says with most answers whether there are any; callers here let them in.

// Bounds of contended, in keys and in time.
const (
	maxContended  = 1024
	contendedTime = time.Second
)

// MarkContended records that others were seen waiting for key. It does not block.
func (q *Queue) MarkContended(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mark(key)
	if l := q.locals[key]; l != nil {
		l.remote = true
	}
}

// mark notes key in contended. The caller holds q.mu.
func (q *Queue) mark(key string) {
	if len(q.contended) == maxContended {
		clear(q.contended)
	}
	q.contended[key] = time.Now().Add(contendedTime)
}

// clearContended notes that nobody else is waiting for key.
func (q *Queue) clearContended(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.contended, key)
}

// hasRemoteWaiters reports that others are known to wait for l's key, so that who contends
// for it is to join them.
func (q *Queue) hasRemoteWaiters(l *local) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.remote || !l.shared && len(q.readers[l.key]) > 0 {
		return true
	}
	until, ok := q.contended[l.key]
	return ok && time.Now().Before(until)
}

// maxUnheard is how often in a row a process may hand a key over inside itself before
// it asks whether others wait: mostly the arbiter says so with an
// attempt, but a slow one is not waited for.
const maxUnheard = 4 * maxTransfers

// ask asks whether others wait for l's key, in the background, if it is time to.
func (q *Queue) ask(l *local) {
	q.mu.Lock()
	due := !l.remote && !l.asking && l.transfers >= maxUnheard
	l.asking = l.asking || due
	q.mu.Unlock()
	if due {
		q.look(l.key, func(others bool) { q.asked(l, others) })
	}
}

// asked notes whether others wait for l's key.
func (q *Queue) asked(l *local, others bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.asking = false
	if l.remote = l.remote || others; !l.remote {
		l.transfers = 0
	}
}

// heard notes that the arbiter has answered a transfer: if others wait,
// it has said so.
func (q *Queue) heard(l *local) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !l.remote {
		l.transfers = 0
	}
}
