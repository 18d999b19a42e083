package waitqueue

import (
	"context"
	"time"
)

// This file has what is known of those who wait for a key in other processes. The node that keeps
// the wait queue says with most answers whether there are any; then callers here let them in.

// These bound contended, in keys and in time.
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

// clearContended notes that nobody else waits for key.
func (q *Queue) clearContended(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.contended, key)
}

// hasRemoteWaiters reports whether others are known to wait for l's key, so that a caller that
// contends for it must join them.
func (q *Queue) hasRemoteWaiters(l *local) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.remote || !l.shared && q.hasReaders(l.key) {
		return true
	}
	return time.Now().Before(q.contended[l.key])
}

// maxUnheard is how often in a row a process may hand a key over inside itself before it asks
// whether others wait. Usually the arbiter says so in its answer to an attempt, but a slow arbiter
// is not waited for.
const maxUnheard = 4 * maxHanded

// ask asks in the background whether others wait for l's key, if it is time to.
func (q *Queue) ask(l *local) {
	q.mu.Lock()
	due := !l.remote && !l.asking && l.handed >= maxUnheard
	l.asking = l.asking || due
	q.mu.Unlock()
	if due {
		q.look(l.key, func(remote bool) { q.asked(l, remote) })
	}
}

// look asks in the background whether anybody is in the wait queue for key, and calls told with the
// answer, which is true if no node can say. After Close it does nothing.
func (q *Queue) look(key string, told func(somebody bool)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.background.Go(func() {
		somebody := true
		// The first node that answers need not be the one that keeps the queue.
		for _, i := range q.Order(key) {
			ctx, cancel := context.WithTimeout(context.Background(), q.options.Timeout)
			waits, err := q.nodes[i].HasWaiters(ctx, key)
			cancel()
			if err != nil {
				continue
			}
			if somebody = waits; somebody {
				break
			}
		}
		told(somebody)
	})
}

// asked takes in whether others wait for l's key.
func (q *Queue) asked(l *local, remote bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.asking = false
	if l.remote = l.remote || remote; !l.remote {
		l.handed = 0
	}
}

// heard notes that the arbiter has answered a transfer: if others waited, it would have said so.
func (q *Queue) heard(l *local) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !l.remote {
		l.handed = 0
	}
}
