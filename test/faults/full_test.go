package faults

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server that is out of memory still prolongs a key, which takes none: the locks that are held
// when it runs full are kept.
func TestFullServerKeepsWhatIsHeld(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		client := locktest.Open(t, locktest.Config(server.URL()))
		held := map[string]*redlatch.Lock{
			"one":     locktest.TryLock(t, client, "one"),
			"several": locktest.TryLock(t, client, "several", redlatch.WithAlso("others")),
			"reader":  locktest.TryLock(t, client, "reader", redlatch.WithShared()),
			"permit":  locktest.TryLock(t, client, "permit", redlatch.WithPermits(2)),
		}
		locktest.Do(t, server, "CONFIG", "SET", "maxmemory", "1")
		answers(t, server, "OOM", "SET", "probe", "")
		for name, lock := range held {
			until := lock.Until()
			locktest.Extend(t, lock, locktest.TTL)
			if !lock.Until().After(until) {
				t.Errorf("%s: extended until %v, which was %v", name, lock.Until(), until)
			}
			locktest.Unlock(t, lock)
		}
	})
}
