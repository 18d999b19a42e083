package topology

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A client that may not ask its only address which master has which slot finds all masters once
// it may.
func TestClusterRightToAskComesLater(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		for i, s := range servers {
			locktest.Do(t, s, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
			if i == 0 {
				locktest.Do(t, s, "ACL", "SETUSER", "u", "-cluster")
			}
		}
		client := locktest.Open(t, locktest.Config(servers[0].URLAs("u", "p")+"?cluster"))
		for i := range servers {
			if _, err := client.TryLock(t.Context(), storm.NameAt(i)); !errors.Is(err, redlatch.ErrRefused) {
				t.Errorf("at master %d: %v, want ErrRefused", i, err)
			}
		}
		locktest.Do(t, servers[0], "ACL", "SETUSER", "u", "+cluster")
		for i := range servers {
			locktest.Await(t, fmt.Sprintf("a lock at master %d", i), func() bool {
				lock, err := client.TryLock(t.Context(), storm.NameAt(i))
				if err == nil {
					locktest.Unlock(t, lock)
				}
				return err == nil
			})
		}
	})
}
