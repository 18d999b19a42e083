package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
)

type redlatchLocker struct{ client *redlatch.Client }

func openRedlatch(quarantine bool) func(addrs []string) (locker, error) {
	return func(addrs []string) (locker, error) {
		return openRedlatchWith(redlatch.Config{
			NoQuarantine: !quarantine,
			// Clients with other settings must not share a deployment.
			Deployment: fmt.Sprintf("bench-%d-quarantine-%t", len(addrs), quarantine),
		}, addrs)
	}
}

// openRedlatchWith returns when the nodes vote.
func openRedlatchWith(config redlatch.Config, addrs []string) (locker, error) {
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		// Named, because the same node may be reached through a proxy too.
		names[i] = fmt.Sprintf("node-%d", i)
		config.Nodes = append(config.Nodes, "redis://"+addr+"#"+names[i])
	}
	client, err := redlatch.Open(config)
	if err != nil {
		return nil, err
	}
	l := &redlatchLocker{client}
	if config.NoQuarantine {
		return l, nil
	}
	// Fresh servers have forgotten nothing; left alone they vote after 34 s.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range names {
		if err := client.Admit(ctx, name); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

func (l *redlatchLocker) close() { l.client.Close() }

func (l *redlatchLocker) pair(ctx context.Context, name string) error {
	lock, err := l.client.Lock(ctx, name)
	if err != nil {
		return err
	}
	return lock.Unlock(ctx)
}

func (l *redlatchLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lock, err := l.client.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}
