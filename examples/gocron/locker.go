package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
)

// Locker is a gocron.Locker. It is safe for concurrent use.
type Locker struct {
	client  *redlatch.Client
	options []redlatch.Option
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker whose locks have these options. Give it
// [redlatch.WithMinHold] with more than the machines' clocks differ: a job that is done
// sooner is else done again by one whose clock is behind.
func NewLocker(client *redlatch.Client, options ...redlatch.Option) *Locker {
	return &Locker{client: client, options: options}
}

// Lock makes one try for the lock of a job's name, under "cron/". Where it fails gocron leaves
// this run of the job out, and AfterLockError gets the error: redlatch.ErrHeld, where
// another machine runs it, or one of the other errors of TryLock.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.client.TryLock(ctx, "cron/"+job, l.options...)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// Once returns a task that runs fn on one machine alone, as [redlatch.Client.TryDo] does: the ctx
// of fn ends when the lock is lost. Where another machine has the lock the task returns
// redlatch.ErrHeld.
func Once(client *redlatch.Client, job string, fn func(ctx context.Context) error, options ...redlatch.Option) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		return client.TryDo(ctx, "cron/"+job, fn, options...)
	})
}
