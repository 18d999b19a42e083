package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// slow is a hook that has commands with one of some words take until opened is closed.
type slow struct {
	words      []any
	opened     chan struct{}
	held, over atomic.Int32
}

func (s *slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !slices.ContainsFunc(s.words, func(word any) bool { return slices.Contains(cmd.Args(), word) }) {
			return next(ctx, cmd)
		}
		s.held.Add(1)
		<-s.opened
		defer s.over.Add(1)
		return next(ctx, cmd)
	}
}

// Many callers give their tries up, which are executed all the same: each is undone after
// that, as one caller's is.
func TestManyCallersGiveUp(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 200, ReadTimeout: patience})
	t.Cleanup(func() { rdb.Close() })
	c := config
	c.MaxTTL, c.TTL, c.NodeTimeout = 2*patience, 2*patience, 300*time.Millisecond
	client := open(t, c, rdb)
	lock, err := tryLock(t, client, "before")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, lock)

	acquires := &slow{words: []any{"acquire", "batch"}, opened: make(chan struct{})}
	rdb.AddHook(acquires)
	// Steps that went together do nothing in a later second than they were made in.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	var callers sync.WaitGroup
	name := func(i int) string { return fmt.Sprint("name", i) }
	const many = 64
	for i := range many {
		callers.Go(func() {
			if lock, err := client.TryLock(t.Context(), name(i)); lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("%s: %v", name(i), err)
			}
		})
	}
	callers.Wait()
	time.Sleep(4 * c.NodeTimeout) // the network is slow
	close(acquires.opened)
	await(t, "all are over", func() bool { return acquires.over.Load() == acquires.held.Load() })
	for i := range many {
		await(t, name(i)+" is free", func() bool {
			v, err := server.Do("EXISTS", name(i))
			return err == nil && v == int64(0)
		})
	}
	if acquires.held.Load() == 0 {
		t.Error("nothing was slow")
	}
}
