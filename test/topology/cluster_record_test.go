package topology

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A master's record that no client has written is named, with a remedy that a Cluster has: its settings are not
// set anew. When it is deleted, the master waits as one that forgot, and then votes.
func TestClusterForeignRecord(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, time.Minute)
		client := locktest.Open(t, c.config)
		c.admit(t, client)
		slots, err := c.SlotsOf(c.Masters[0])
		must(t, err)
		record := "redlatch:{" + hashslot.TagOf(uint16(slots[len(slots)-1])) + "}:deployment:" + c.config.Deployment
		foreign := map[string][]string{"garbage": {"SET", record, "garbage"}, "of another type": {"RPUSH", record, "x"}}
		name := storm.NameAt(0)
		for what, command := range foreign {
			if locktest.Value(t, c.Masters[0], record) == "" {
				t.Fatalf("no record in %s", record)
			}
			locktest.Do(t, c.Masters[0], "DEL", record)
			locktest.Do(t, c.Masters[0], command...)
			mends := func(err error) bool {
				return err != nil && strings.Contains(err.Error(), record) && strings.Contains(err.Error(), "in a Redis Cluster, delete it")
			}
			locktest.Await(t, "it is refused", func() bool {
				_, err = client.TryLock(t.Context(), name)
				return errors.Is(err, redlatch.ErrRefused)
			})
			if !mends(err) {
				t.Errorf("%s: %v, want an error that names %s and the remedy", what, err, record)
			}
			if r := locktest.Examine(t, c.config)[0]; r.Status != doctor.StatusUnfit || !mends(r.Unreadable) {
				t.Errorf("%s: examined, it is %v: %v", what, r.Status, r.Unreadable)
			}
			locktest.Do(t, c.Masters[0], "DEL", record)
			if _, err := locktest.AwaitAnswer(t, client, name); !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Errorf("%s, deleted: %v, want ErrNotAdmitted", what, err)
			}
		}
		c.admit(t, client)
		locktest.Unlock(t, locktest.TryLock(t, client, name))
	})
}
