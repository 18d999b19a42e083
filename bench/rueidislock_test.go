package bench

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockLocker is rueidislock as its README has it for one node. Its
// majority is one of keys, in one Redis or Cluster, not one of nodes.
type rueidislockLocker struct{ locker rueidislock.Locker }

func openRueidislock(addrs []string) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return &rueidislockLocker{l}, nil
}

func rueidislockKey(name string) string { return "rueidislock:0:" + name }

func (l *rueidislockLocker) close() { l.locker.Close() }

func (l *rueidislockLocker) pair(ctx context.Context, name string) error {
	_, release, err := l.locker.WithContext(ctx, name)
	if err != nil {
		return err
	}
	release()
	return nil
}

func (l *rueidislockLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	_, release, err := l.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { release(); return nil }, nil
}
