package topology

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A lock is extended where its server is out of memory, also if replicas have to acknowledge that: it takes no memory.
func TestAcknowledgedExtensionTakesNoMemory(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.TTL, conf.MaxTTL = 4*locktest.Patience, 4*locktest.Patience
		conf.Replicas.Count = 1
		client := locktest.Open(t, conf)
		lock := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		locktest.Do(t, r.master, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		locktest.Do(t, r.master, "CONFIG", "SET", "maxmemory", "1")
		locktest.Await(t, "it is extended", func() bool {
			err := lock.Extend(locktest.Within(t, locktest.Patience), conf.TTL)
			if err != nil && strings.Contains(err.Error(), "OOM") {
				t.Fatal(err)
			}
			return err == nil
		})
	})
}
