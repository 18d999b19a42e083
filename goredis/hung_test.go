package goredis_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// One master of a Cluster hangs, with a hundred callers on its slots. The locks of the
// others are granted as before, meanwhile and after the callers have gone. It does not run
// beside other tests, whom it would take the processor from.
func TestClusterOneMasterHangs(t *testing.T) {
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary, Args: []string{"--cluster-require-full-coverage", "no"}})
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[1].Addr(), servers[2].Addr()}, PoolSize: 200, ReadTimeout: patience / 2})
			t.Cleanup(func() { rdb.Close() })
			c := config
			c.Nodes, c.NoQuarantine, c.NodeTimeout = []string{"cluster"}, false, 250*time.Millisecond
			c.TTL, c.MaxTTL = 20*time.Second, 20*time.Second // which is waited for
			client := open(t, c, rdb)
			await(t, "the Cluster is vouched for", func() bool { return client.Admit(t.Context(), "cluster") == nil })
			hung, healthy := namesBelow(0, hashslot.Slots/3, 2000), namesBelow(hashslot.Slots/3+1, hashslot.Slots, 10)
			for _, name := range slices.Concat(hung[:1], healthy) {
				lock, err := tryLock(t, client, name)
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, lock)
			}
			if err := servers[0].Pause(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { servers[0].Resume() })

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var callers sync.WaitGroup
			var tries atomic.Int64
			for i := range 100 {
				callers.Go(func() {
					for k := i; ctx.Err() == nil; k += 100 {
						tries.Add(1)
						if lock, err := client.TryLock(ctx, hung[k%len(hung)]); err == nil {
							t.Errorf("%s was granted by a master that hangs", lock.Name())
							return
						}
						time.Sleep(time.Millisecond) // so that the others can work
					}
				})
			}
			// Until any room that all masters share is taken by what this one does not answer.
			await(t, "the callers have tried often", func() bool { return tries.Load() >= 3000 })
			nearlyAll(t, "while 100 callers wait", client, healthy)
			cancel()
			callers.Wait()
			nearlyAll(t, "after they have gone", client, healthy)

			if err := servers[0].Resume(); err != nil {
				t.Fatal(err)
			}
			limit, stop := context.WithTimeout(t.Context(), c.MaxTTL+4*time.Second+patience)
			defer stop()
			lock, err := client.Lock(limit, hung[0])
			if err != nil {
				t.Fatalf("after the master goes on: %v", err)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// namesBelow returns n names in slots from low on and below high.
func namesBelow(low, high, n int) []string {
	names := make([]string, 0, n)
	for k := 0; len(names) < n; k++ {
		name := "job" + strconv.Itoa(k)
		if slot := int(hashslot.Of(name)); slot >= low && slot < high {
			names = append(names, name)
		}
	}
	return names
}

// nearlyAll wants nearly all of 200 tries granted: a busy machine may be late for one, and for
// many now and then.
func nearlyAll(t *testing.T, when string, client *redlatch.Client, names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	granted := 0
	var last error
	for round := 0; round < 10 && granted < 190; round++ {
		granted = 0
		for i := range 200 {
			lock, err := client.TryLock(ctx, names[i%len(names)])
			if err == nil {
				err = lock.Unlock(ctx)
			}
			if err == nil {
				granted++
			} else {
				last = err
			}
		}
		t.Logf("%s: %d of 200 tries were granted", when, granted)
	}
	if granted < 190 {
		t.Errorf("%s: %d of 200 tries were granted; the last error: %v", when, granted, last)
	}
}
