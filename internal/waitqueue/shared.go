package waitqueue

import (
	"context"

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

// joinShared is Join for a reader. Others of this process may have places for the same key.
func (q *Queue) joinShared(key string) *Ticket {
	t := &Ticket{queue: q, key: key, order: q.Order(key), woken: make(chan notice, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.name(vote.Reader)
	if q.readers == nil {
		q.readers = make(map[string]map[string]*Ticket)
	}
	if q.readers[key] == nil {
		q.readers[key] = make(map[string]*Ticket)
	}
	q.readers[key][t.waiter] = t
	return t
}

// forgetReader removes a ticket, if it is a reader's. The caller holds q.mu.
func (q *Queue) forgetReader(t *Ticket) {
	delete(q.readers[t.key], t.waiter)
	if len(q.readers[t.key]) == 0 {
		delete(q.readers, t.key)
	}
}

// readersChanged is Changed for the readers. The caller holds q.mu.
func (q *Queue) readersChanged(key string) {
	for of, readers := range q.readers {
		if of != key && key != "" {
			continue
		}
		for _, t := range readers {
			t.signal(notice{})
		}
	}
}
