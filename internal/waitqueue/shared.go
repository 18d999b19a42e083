package waitqueue

import (
	"context"
	"strings"

	"github.com/redlatch/redlatch/internal/vote"
)

// WaitShared is Wait for a reader. It waits for no other caller of this process, and has a place of
// its own in the queue: readers come in at the same time, and each holds for itself.
func (q *Queue) WaitShared(ctx context.Context, c Caller) error {
	l := &local{key: c.Key(), shared: true}
	// Deferred: a report may panic or end this goroutine. A holder has no place any more.
	defer func() { l.ticket.Leave() }()
	lease, _, err := q.contend(ctx, c, l)
	if err != nil {
		return err
	}
	c.Hold(lease)
	return nil
}

// hasReaders reports whether readers of this process wait for key. The caller holds q.mu.
func (q *Queue) hasReaders(key string) bool {
	for waiter := range q.tickets[key] {
		if strings.HasPrefix(waiter, vote.Reader) {
			return true
		}
	}
	return false
}
