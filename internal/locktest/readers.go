package locktest

import (
	"context"
	"sync"

	"github.com/redlatch/redlatch"
)

// Readers sees everybody who has one lock as a reader or as the writer, from having it to before the
// release.
type Readers struct {
	T interface {
		Errorf(format string, args ...any)
	}

	mu     sync.Mutex // guards what follows
	inside map[*redlatch.Lock]bool
	// written is the largest token of a writer so far, and any the largest of all.
	written, any uint64
	together     int
}

// Enter checks that no writer is in beside another holder who relies on the lock, and that the token is
// larger than those of all writers before, and a writer's than all.
func (r *Readers) Enter(lock *redlatch.Lock, reads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, otherReads := range r.inside {
		if !(reads && otherReads) && other.Err() == nil && lock.Err() == nil {
			r.T.Errorf("token %d (reader %t) beside token %d (reader %t)", lock.Token(), reads, other.Token(), otherReads)
		}
	}
	least := r.any
	if reads {
		least = r.written
	}
	if lock.Token() <= least {
		r.T.Errorf("token %d (reader %t) after %d", lock.Token(), reads, least)
	}
	if r.any = max(r.any, lock.Token()); !reads {
		r.written = max(r.written, lock.Token())
	}
	if r.inside == nil {
		r.inside = make(map[*redlatch.Lock]bool)
	}
	r.inside[lock] = reads
	r.together = max(r.together, len(r.inside))
}

// Pass takes a lock in and out again; held is called in between.
func (r *Readers) Pass(lock *redlatch.Lock, reads bool, held func()) {
	r.Enter(lock, reads)
	if held != nil {
		held()
	}
	r.mu.Lock()
	delete(r.inside, lock)
	r.mu.Unlock()
	lock.Unlock(context.Background())
}

// Together is how many were in at the same time at most.
func (r *Readers) Together() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.together
}
