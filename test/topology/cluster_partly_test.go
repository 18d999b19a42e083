package topology

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A slot is being moved key by key, and the wait queue has gone before the lock that readers have. Who comes then waits until
// the slot is moved, like those who wait already; nobody is told that the server refuses.
func TestClusterQueueMovesBeforeTheLock(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := &hurtCluster{
			Cluster: redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Binary: binary}),
			config:  redlatch.Config{TTL: locktest.TTL, MaxTTL: locktest.TTL, NodeTimeout: time.Second, Deployment: storm.NameAt(2)},
		}
		c.config.Nodes = []string{clusterURL(c.Masters) + "#" + storm.Node}
		from, to := c.Masters[0], c.Masters[1]
		client, other, name := locktest.Open(t, c.config), locktest.Open(t, c.config), storm.NameAt(0)
		c.admit(t, client)
		wait := func(options ...redlatch.Option) (out <-chan locktest.Outcome, waits <-chan struct{}) {
			report, waits := locktest.WhenWaiting(nil)
			return locktest.LockIn(locktest.Within(t, locktest.Patience), other, name, append(options, report)...), waits
		}
		reader := locktest.TryLock(t, client, name, redlatch.WithShared())
		writer, waits := wait()
		<-waits
		slot := strconv.Itoa(storm.SlotOf(name))
		queued := func() (keys []string) {
			for _, key := range locktest.Do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, "100").([]any) {
				if k := key.(string); strings.Contains(k, ":queue:") || strings.Contains(k, ":heartbeats:") {
					keys = append(keys, k)
				}
			}
			return keys
		}
		locktest.Await(t, "the writer is in the queue", func() bool { return len(queued()) == 2 })
		locktest.Do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", locktest.Do(t, from, "CLUSTER", "MYID").(string))
		locktest.Do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", locktest.Do(t, to, "CLUSTER", "MYID").(string))
		for _, key := range queued() {
			locktest.Do(t, from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), key, "0", "5000")
		}

		late, waits := wait(redlatch.WithShared())
		select {
		case <-waits:
		case out := <-late:
			t.Fatalf("who came late waits no more: %v", out.Err)
		}
		if err := reader.Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("the release: %v", err)
		}
		must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
		for range 2 {
			select {
			case out := <-writer:
				must(t, out.Err)
				locktest.Unlock(t, out.Lock)
				writer = nil
			case out := <-late:
				must(t, out.Err)
				locktest.Unlock(t, out.Lock)
				late = nil
			}
		}
	})
}

// A Cluster that needs all its slots, as it does unless told otherwise, does nothing in any of them while a master is away.
func TestClusterThatNeedsAllSlots(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Binary: binary})
		conf := locktest.Config(clusterURL(c.Masters))
		client := locktest.Open(t, conf)
		lock, err := locktest.AwaitAnswer(t, client, storm.NameAt(1))
		if err != nil {
			t.Fatal(err)
		}
		down := func(err error) bool {
			return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "CLUSTERDOWN")
		}
		c.Masters[0].Kill()
		locktest.Await(t, "no extension at another master", func() bool { return down(lock.Extend(t.Context(), conf.TTL)) })
		locktest.Await(t, "no lock at another master", func() bool {
			return down(locktest.ErrorOf(client.TryLock(t.Context(), storm.NameAt(2))))
		})
		must(t, c.Restart(locktest.Within(t, locktest.Patience), c.Masters[0]))
		locktest.Await(t, "an extension", func() bool { return lock.Extend(t.Context(), conf.TTL) == nil })
		locktest.Unlock(t, lock)
	})
}
