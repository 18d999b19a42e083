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

// While a slot is moved key by key, one of the two masters loses all keys, of which the lock is one. The slot's admission key is at
// the other, and stays: it does not vouch for what is gone.
func TestClusterFlushAmidAMove(t *testing.T) {
	t.Parallel()
	type loss struct{ atReceiver, recordAway bool }
	for what, loss := range map[string]loss{
		"the giver": {}, "the giver, while its record is away": {recordAway: true},
		"the receiver": {atReceiver: true}, "the receiver, while its record is away": {atReceiver: true, recordAway: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := newHurtCluster(t, binary, 0, 2*fixTTL)
				holder := locktest.Open(t, c.config)
				c.admit(t, holder)
				from, to, name := c.Masters[0], c.Masters[1], storm.NameAt(0)
				c.uptime(t, from, to) // else nobody knows that the receiver lost nothing by a restart
				held, err := holder.Lock(locktest.Within(t, locktest.Patience), name, redlatch.WithoutRenewal())
				must(t, err)
				slot := storm.SlotOf(name)
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), slot, to, func(key string) {
					if key != "" { // not before the first
						return
					}
					for _, key := range locktest.Do(t, from, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "100").([]any) {
						if strings.Contains(key.(string), ":admitted:") != loss.atReceiver {
							locktest.Do(t, from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), key.(string), "0", "5000")
						}
					}
					loser := from
					if loss.atReceiver {
						loser = to
					}
					if !loss.recordAway {
						locktest.Do(t, loser, "FLUSHALL")
						return
					}
					slots, err := c.SlotsOf(loser)
					must(t, err)
					last := slots[len(slots)-1] // where the record is
					must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), last, c.Masters[2], nil))
					locktest.Do(t, loser, "FLUSHALL")
					must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), last, loser, nil))
				}))
				c.noSecondHolder(t, held)
			})
		})
	}
}

// While a slot is moved key by key, the master that is to get it loses a lock that has come there already. Another lock of the
// slot is extended at the master that still has it, after that. So the slot's admission key is younger than the loss, and
// does not vouch for what was moved before.
func TestClusterReceiverForgetsAmidAMove(t *testing.T) {
	t.Parallel()
	for what, restarts := range map[string]bool{"is flushed": false, "restarts": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := newHurtCluster(t, binary, 0, 3*fixTTL)
				holder := locktest.Open(t, c.config)
				c.admit(t, holder)
				from, to, name := c.Masters[0], c.Masters[1], storm.NameAt(0)
				other, err := holder.Lock(locktest.Within(t, locktest.Patience), "{"+name+"}other")
				must(t, err)
				held, err := holder.Lock(locktest.Within(t, locktest.Patience), name, redlatch.WithoutRenewal())
				must(t, err)
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, func(key string) {
					if key != "" { // not before the first
						return
					}
					locktest.Do(t, from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), name, "0", "5000")
					if restarts {
						must(t, c.RestartEmpty(locktest.Within(t, locktest.Patience), to))
					} else {
						locktest.Do(t, to, "FLUSHALL")
						if lock, err := holder.TryLock(t.Context(), storm.NameAt(1)); err == nil { // what its slots are is recorded anew
							t.Errorf("a flushed master has granted %v", lock)
						}
					}
					lost := locktest.ServerTime(t, to)
					locktest.Await(t, "times in whole seconds hide nothing", func() bool { return locktest.ServerTime(t, to).Sub(lost) > 4*time.Second })
					if err := other.Extend(t.Context(), c.config.TTL); err != nil {
						t.Logf("the other lock is not extended: %v", err)
					}
				}))
				c.noSecondHolder(t, held)
			})
		})
	}
}

// Nobody is admitted amid a move, which would vouch for what has come to the other master already.
func TestClusterNoAdmissionAmidAMove(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		client := locktest.Open(t, locktest.Config(clusterURL(servers)))
		lock := locktest.TryLock(t, client, storm.NameAt(0), redlatch.WithoutRenewal())
		from, slot := servers[0], strconv.Itoa(storm.SlotOf(lock.Name()))
		locktest.Do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", locktest.Do(t, servers[1], "CLUSTER", "MYID").(string))
		locktest.Do(t, from, "SCRIPT", "FLUSH")
		if err := lock.Extend(t.Context(), locktest.TTL); !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "its slot is being moved") {
			t.Errorf("amid the move: %v", err)
		}
		locktest.Do(t, from, "CLUSTER", "SETSLOT", slot, "STABLE")
		locktest.Await(t, "it is extended", func() bool { return lock.Extend(t.Context(), locktest.TTL) == nil })
	})
}

// noSecondHolder has another client try for a lock that is held, whose nodes have lost it.
func (c *hurtCluster) noSecondHolder(t *testing.T, held *redlatch.Lock) {
	t.Helper()
	_, err := locktest.AwaitAnswer(t, locktest.Open(t, c.config), held.Name())
	switch {
	case err == nil && held.Err() == nil:
		t.Errorf("the lock has two holders: the first for another %v", time.Until(held.Until()))
	case err == nil:
		t.Error("the lock was granted too early, or this machine is too slow")
	}
}
