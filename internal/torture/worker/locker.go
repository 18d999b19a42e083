package worker

import (
	"context"
	"time"
)

// Locker is a lock library, set up as its documentation has it.
type Locker interface {
	// Lock acquires name, and waits until ctx is done.
	Lock(ctx context.Context, name string) (Hold, error)
	// Close releases what is held, and blocks until nothing is under way.
	Close() error
}

// Hold is one acquisition.
type Hold interface {
	// Until is the end of what the library says it may be relied on, with a
	// monotonic reading.
	Until() time.Time
	// Token is the fencing token, 0 where the library has none.
	Token() uint64
	// Err is not nil when the library knows that the lock is not held any more.
	Err() error
	Unlock(ctx context.Context) error
}

// Extender is a Hold that does not renew itself: a long holder extends it each
// third of its TTL.
type Extender interface {
	Extend(ctx context.Context) error
}
