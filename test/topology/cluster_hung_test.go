package topology

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// One master hangs, with a hundred callers on its slots. The locks of the others are
// granted as before, meanwhile and after the callers have gone. It does not run beside
// other tests, whom it would take the processor from.
func TestClusterOneMasterHangs(t *testing.T) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, way := range []string{"TryLock", "Lock"} {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				untilKept(t, func() error { return oneMasterHangs(t, binary, way) })
			})
		}
	})
}

// oneMasterHangs returns why a lock of another master was lost.
func oneMasterHangs(t *testing.T, binary, way string) error {
	c := newHurtCluster(t, binary, 0, fixTTL)
	c.config.NodeTimeout = 250 * time.Millisecond
	client := locktest.Open(t, c.config)
	c.admit(t, client)
	for i := range c.Masters {
		locktest.Unlock(t, locktest.TryLock(t, client, storm.NameAt(i)))
	}
	elsewhere := locktest.TryLock(t, client, storm.NameAt(1))
	must(t, c.Masters[0].Pause())
	t.Cleanup(func() { c.Masters[0].Resume() })

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	var tries atomic.Int64
	hung := storm.NamesAt(0, 2000)
	for i := range 100 {
		callers.Go(func() {
			for k := i; ctx.Err() == nil; k += 100 {
				name := hung[k%len(hung)]
				tries.Add(1)
				var lock *redlatch.Lock
				var err error
				if way == "Lock" {
					lock, err = client.Lock(ctx, name)
				} else {
					lock, err = client.TryLock(ctx, name)
				}
				if err == nil {
					t.Errorf("%v was granted by a master that hangs", lock)
					return
				}
				storm.Rest(ctx, time.Millisecond)
			}
		})
	}
	// Until any room that all masters share is taken by what this one does not answer.
	locktest.Await(t, "the callers have tried often", func() bool { return tries.Load() >= map[string]int64{"TryLock": 3000, "Lock": 100}[way] })
	healthy := append(storm.NamesAt(1, 5), storm.NamesAt(2, 5)...)
	limit := locktest.Within(t, 4*locktest.Patience)
	c.nearlyAll(t, "while 100 callers wait", func() tally { return tryAll(limit, client, healthy, 4, 200) })
	cancel()
	callers.Wait()
	c.nearlyAll(t, "after they have gone", func() tally { return tryAll(limit, client, healthy, 4, 200) })
	must(t, c.Masters[0].Resume())
	if err := elsewhere.Err(); err != nil { // a lock of another master
		return err
	}
	lock, err := client.Lock(locktest.Within(t, c.d+locktest.Patience), storm.NameAt(0))
	if err != nil {
		t.Fatalf("after the master goes on: %v", err)
	}
	locktest.Unlock(t, lock)
	locktest.Unlock(t, elsewhere)
	return nil
}

// One master takes no more connections, and those who want one come and go. The tries on
// the others are not refused. It runs alone, as the one above.
func TestClusterOneMasterAtMaxclients(t *testing.T) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, fixTTL)
		c.config.NodeTimeout = time.Second
		client := locktest.Open(t, c.config)
		c.admit(t, client)
		for i := range c.Masters {
			locktest.Unlock(t, locktest.TryLock(t, client, storm.NameAt(i)))
		}
		conn, err := c.Masters[0].Dial(t.Context()) // for as long as it is full
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		for _, command := range [][]string{{"CONFIG", "SET", "maxclients", "1"}, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}} {
			if _, err := conn.Do(command...); err != nil {
				t.Fatal(err)
			}
		}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var callers sync.WaitGroup
		for i := range 32 {
			callers.Go(func() {
				for ctx.Err() == nil {
					client.TryLock(ctx, fmt.Sprint("{", storm.NameAt(0), "}", i))
				}
			})
		}
		healthy := append(storm.NamesAt(1, 5), storm.NamesAt(2, 5)...)
		limit := locktest.Within(t, 4*locktest.Patience)
		c.nearlyAll(t, "while a master is at maxclients", func() tally { return tryAll(limit, client, healthy, 4, 200) })
		cancel()
		callers.Wait()
		if _, err := conn.Do("CONFIG", "SET", "maxclients", "10000"); err != nil {
			t.Fatal(err)
		}
		lock, err := client.Lock(locktest.Within(t, c.d+locktest.Patience), storm.NameAt(0))
		if err != nil {
			t.Fatalf("after it takes connections again: %v", err)
		}
		locktest.Unlock(t, lock)
	})
}
