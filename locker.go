package redlatch

import "context"

// Locker is what most programs ask of a client. A program that takes one, in place of a *Client,
// can be tested with the *redlatchtest.Client, which locks in memory. The methods are those of
// Client, and safe for concurrent use.
type Locker interface {
	Lock(ctx context.Context, name string, options ...Option) (*Lock, error)
	TryLock(ctx context.Context, name string, options ...Option) (*Lock, error)
	Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error
	TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error
}

var _ Locker = (*Client)(nil)
