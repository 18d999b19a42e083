package locktest

import (
	"context"
	"sync"

	"github.com/redlatch/redlatch"
)

// LockIn starts a Lock and returns where its outcome will be.
func LockIn(ctx context.Context, c redlatch.Locker, name string, options ...redlatch.Option) <-chan Outcome {
	out := make(chan Outcome, 1)
	go func() {
		lock, err := c.Lock(ctx, name, options...)
		out <- Outcome{lock, err}
	}()
	return out
}

// Outcome is what Lock returned.
type Outcome struct {
	Lock *redlatch.Lock
	Err  error
}

// WhenWaiting returns an option that reports failed tries, and what is closed at
// the first.
func WhenWaiting(report func(error)) (redlatch.Option, <-chan struct{}) {
	first := make(chan struct{})
	var once sync.Once
	return redlatch.WithWaitReport(func(err error) {
		if report != nil {
			report(err)
		}
		once.Do(func() { close(first) })
	}), first
}

// RLockIn is LockIn for a reader.
func RLockIn(ctx context.Context, c redlatch.Locker, name string, options ...redlatch.Option) <-chan Outcome {
	return LockIn(ctx, c, name, append(options, redlatch.WithShared())...)
}
