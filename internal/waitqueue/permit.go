package waitqueue

import "context"

// WaitPermit is Wait for a caller that wants one of several slots; Key is then the key of their
// queue. Callers of this process contend one after the other, but do not wait for those that hold a
// slot, and no slot is transferred.
func (q *Queue) WaitPermit(ctx context.Context, c Caller) error {
	l, w := q.enter(c)
	if w != nil {
		if _, err := q.stay(ctx, l, w); err != nil {
			return err
		}
	}
	// Deferred: a report may panic or end this goroutine, and the next caller must contend.
	defer q.pass(l)
	lease, remote, err := q.contend(ctx, c, l)
	if err != nil {
		return err
	}
	q.mu.Lock()
	l.remote = remote
	q.mu.Unlock()
	c.Hold(lease)
	return nil
}
