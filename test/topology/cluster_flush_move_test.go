package topology

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
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
				_, err = locktest.AwaitAnswer(t, locktest.Open(t, c.config), name)
				switch {
				case err == nil && held.Err() == nil:
					t.Errorf("the lock has two holders: the first for another %v", time.Until(held.Until()))
				case err == nil:
					t.Error("the lock was granted too early, or this machine is too slow")
				}
			})
		})
	}
}
