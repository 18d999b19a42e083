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
		m := newPartlyMoved(t, binary)
		late, waits := m.wait(t, redlatch.WithShared())
		select {
		case <-waits:
		case out := <-late:
			t.Fatalf("who came late waits no more: %v", out.Err)
		}
		m.unlock(t)
		m.move(t)
		for range 2 {
			select {
			case out := <-m.writer:
				must(t, out.Err)
				locktest.Unlock(t, out.Lock)
				m.writer = nil
			case out := <-late:
				must(t, out.Err)
				locktest.Unlock(t, out.Lock)
				late = nil
			}
		}
	})
}

// The last reader releases there, and the server ends the script when it comes to the queue. The writer that waits gets the
// lock when the slot is moved, and not as late as the reader's time ends.
func TestClusterReaderLeavesAPartlyMovedSlot(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		m := newPartlyMoved(t, binary)
		m.unlock(t)
		m.move(t)
		out := <-m.writer // within less than a TTL
		must(t, out.Err)
		locktest.Unlock(t, out.Lock)
	})
}

// partlyMoved is a Cluster of which a slot is being moved. The wait queue, in which a writer is, has gone before the lock that a
// reader has.
type partlyMoved struct {
	*hurtCluster
	reader *redlatch.Lock
	other  *redlatch.Client
	writer <-chan locktest.Outcome
}

func newPartlyMoved(t *testing.T, binary string) *partlyMoved {
	t.Helper()
	c := &hurtCluster{
		Cluster: redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Binary: binary}),
		config:  redlatch.Config{TTL: locktest.TTL, MaxTTL: locktest.TTL, NodeTimeout: time.Second, Deployment: storm.NameAt(2)},
	}
	c.config.Nodes = []string{clusterURL(c.Masters) + "#" + storm.Node}
	m := &partlyMoved{hurtCluster: c, other: locktest.Open(t, c.config)}
	from, to, client := c.Masters[0], c.Masters[1], locktest.Open(t, c.config)
	c.admit(t, client)
	m.reader = locktest.TryLock(t, client, storm.NameAt(0), redlatch.WithShared())
	writer, waits := m.wait(t)
	<-waits
	m.writer = writer
	slot := strconv.Itoa(storm.SlotOf(storm.NameAt(0)))
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
	return m
}

// wait has the other client wait for the lock, for less than the reader's TTL.
func (m *partlyMoved) wait(t *testing.T, options ...redlatch.Option) (out <-chan locktest.Outcome, waits <-chan struct{}) {
	t.Helper()
	report, waits := locktest.WhenWaiting(nil)
	return locktest.LockIn(locktest.Within(t, locktest.Patience), m.other, storm.NameAt(0), append(options, report)...), waits
}

// unlock has the reader release, which the server may not do to the end.
func (m *partlyMoved) unlock(t *testing.T) {
	t.Helper()
	if err := m.reader.Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("the release: %v", err)
	}
}

// move moves the rest of the slot.
func (m *partlyMoved) move(t *testing.T) {
	t.Helper()
	must(t, m.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(storm.NameAt(0)), m.Masters[1], nil))
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
