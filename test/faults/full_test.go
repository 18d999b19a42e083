package faults

import (
	"testing"
	"time"

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
		ttl := redlatch.WithTTL(6 * time.Second)
		held := map[string]*redlatch.Lock{
			"one":     locktest.TryLock(t, client, "one", ttl),
			"several": locktest.TryLock(t, client, "several", ttl, redlatch.WithAlso("others")),
			"reader":  locktest.TryLock(t, client, "reader", ttl, redlatch.WithShared()),
			"permit":  locktest.TryLock(t, client, "permit", ttl, redlatch.WithPermits(2)),
		}
		locktest.Do(t, server, "CONFIG", "SET", "maxmemory", "1")
		answers(t, server, "OOM", "SET", "probe", "")
		until := map[string]time.Time{}
		for name, lock := range held {
			until[name] = lock.Until()
		}
		for name, lock := range held {
			locktest.Await(t, name+" is renewed", func() bool { return lock.Until().After(until[name]) || lock.Err() != nil })
			if err := lock.Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			locktest.Unlock(t, lock)
		}
	})
}
