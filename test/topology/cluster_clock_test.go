package topology

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A slot is moved with a lock, and the master that gets it restarts with the slot's admission key and without the lock.
// The clock of the master that gave it away is ahead, as far as tokens presume at most, so that the key seems to be
// younger than the start.
func TestClusterSlotFromAMasterWhoseClockIsAhead(t *testing.T) {
	t.Parallel()
	eachRivals(t, 2*fixTTL, func(t *testing.T, binary string, busy bool, ttl time.Duration) bool {
		c := &hurtCluster{
			Cluster: redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Binary: binary, ClockShim: true, Args: []string{"--cluster-require-full-coverage", "no"}}),
			config:  redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second, Deployment: storm.NameAt(2)}, d: ttl + 4*time.Second,
		}
		c.config.Nodes = []string{clusterURL(c.Masters) + "#" + storm.Node}
		from, to := c.Masters[0], c.Masters[1]
		must(t, from.StepClock(ttl/2))
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		name := storm.NameAt(0)
		locktest.Unlock(t, locktest.TryLock(t, holder, name))
		r := newRivals(t, c.config, name, busy)

		held := locktest.TryLock(t, holder, name, redlatch.WithoutRenewal())
		slot := strconv.Itoa(storm.SlotOf(name))
		locktest.Do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", locktest.Do(t, from, "CLUSTER", "MYID").(string))
		locktest.Do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", locktest.Do(t, to, "CLUSTER", "MYID").(string))
		for _, key := range locktest.Do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, "100").([]any) {
			if strings.Contains(key.(string), ":admitted:") {
				locktest.Do(t, from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), key.(string), "0", "5000")
			}
		}
		locktest.Do(t, to, "SAVE")
		must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
		must(t, c.Restart(locktest.Within(t, locktest.Patience), to))
		if keys := locktest.Do(t, to, "CLUSTER", "GETKEYSINSLOT", slot, "100").([]any); len(keys) != 1 || !strings.Contains(keys[0].(string), ":admitted:") {
			t.Fatalf("the slot has come with %q", keys)
		}
		return r.chase(t, held, c.d)
	})
}

// A slot is moved key by key to a master whose clock is behind, and there the counter that came along expires, since the
// name is not locked for the wait. After that tokens are larger than before if the clock is behind by no more than
// promised, and smaller if it is behind by more than the wait: the clock is all that is left of them.
func TestClusterTokensAtAMasterWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	for behind, grow := range map[time.Duration]bool{fixTTL/2 + time.Second: true, time.Hour: false} {
		t.Run(behind.String(), func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := &hurtCluster{
					Cluster: redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Binary: binary, ClockShim: true}),
					config:  redlatch.Config{TTL: fixTTL, MaxTTL: fixTTL, NodeTimeout: time.Second, Deployment: storm.NameAt(2)}, d: fixTTL + 4*time.Second,
				}
				c.config.Nodes = []string{clusterURL(c.Masters) + "#" + storm.Node}
				to := c.Masters[1]
				must(t, to.StepClock(-behind))
				client, name := locktest.Open(t, c.config), storm.NameAt(0)
				c.admit(t, client)
				lock := func() uint64 {
					t.Helper()
					lock, err := client.Lock(locktest.Within(t, c.d+locktest.Patience), name)
					if err != nil {
						t.Fatal(err)
					}
					locktest.Unlock(t, lock)
					return lock.Token()
				}
				first := lock()
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
				counter := "redlatch:{" + name + "}:token:" + name
				locktest.Await(t, "the counter expires", func() bool { return locktest.Do(t, to, "EXISTS", counter) == int64(0) })
				if second := lock(); second > first != grow {
					t.Errorf("the tokens are %d, then %d", first, second)
				}
			})
		})
	}
}

// A slot in which a reader has a lock is moved key by key to a master whose clock is ahead or behind. The reader extends
// its lock there, other readers come and leave, and no writer gets the lock before the reader has left. Who looks sees the
// reader, and no more left to it than its TTL.
func TestClusterReaderAtAMasterWithAnotherClock(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := &hurtCluster{
					Cluster: redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Binary: binary, ClockShim: true}),
					config:  redlatch.Config{TTL: 5 * locktest.TTL, MaxTTL: 5 * locktest.TTL, NodeTimeout: time.Second, Deployment: storm.NameAt(2)},
				}
				c.config.Nodes = []string{clusterURL(c.Masters) + "#" + storm.Node}
				to := c.Masters[1]
				must(t, to.StepClock(offset))
				client, name := locktest.Open(t, c.config), storm.NameAt(0)
				c.admit(t, client)
				held := locktest.TryLock(t, client, name, redlatch.WithShared(), redlatch.WithoutRenewal())
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
				c.admit(t, client)

				var readers []redlatch.Reader
				err := locktest.InTime(func() (err error) {
					readers, err = redlatch.Readers(t.Context(), c.config, name)
					return err
				})
				if err != nil || held.Err() == nil && (len(readers) != 1 || readers[0].Left <= 0 || readers[0].Left > c.config.TTL) {
					t.Errorf("the readers are %v, %v; want one, which has %v left at most", readers, err, c.config.TTL)
				}
				other := locktest.TryLock(t, client, name, redlatch.WithShared(), redlatch.WithoutRenewal())
				locktest.Unlock(t, other)
				writer, err := locktest.TryInTime(t, client, name)
				if err == nil && held.Err() == nil {
					t.Errorf("a writer has the lock under %d, and a reader for another %v", writer.Token(), time.Until(held.Until()))
				}
				if left := locktest.Remaining(t, to, name); left > c.config.TTL {
					t.Errorf("the lock ends in %v", left)
				}
				locktest.Extend(t, held, c.config.TTL)
			})
		})
	}
}
