package topology

import (
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// One Cluster under three names would be the majority of itself.
func TestOneClusterUnderThreeNames(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		urls := make([]string, len(servers))
		for i, s := range servers {
			urls[i] = s.URL() + "?cluster"
		}
		conf := locktest.Config(urls...)
		// Open waits for the slowest of three only a little longer than for the others.
		locktest.Await(t, "Open finds it", func() bool {
			client, err := redlatch.Open(conf)
			if err == nil {
				client.Close()
			} else if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "are one Cluster") {
				t.Fatalf("Open: %v, want the Cluster refused", err)
			}
			return err != nil && strings.Contains(err.Error(), "n0 and n1")
		})

		// It cannot be reached when the client is opened: the first lock finds out.
		for _, s := range servers {
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
		}
		client, err := redlatch.Open(conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		for _, s := range servers {
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
		}
		locktest.Await(t, "a lock is refused", func() bool {
			lock, err := client.TryLock(t.Context(), "x")
			if err == nil {
				t.Fatalf("the lock is held: %v", lock.Unlock(t.Context()))
			}
			return strings.Contains(err.Error(), "are one Cluster")
		})
	})
}

// Several Clusters are several nodes.
func TestLockOnThreeClusters(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		urls = append(urls, redistest.NewCluster(t, 3)[0].URL()+"?cluster")
	}
	client := locktest.Open(t, locktest.Config(urls...))
	lock, err := locktest.AwaitAnswer(t, client, "x")
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, lock)
}
