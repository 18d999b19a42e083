package locking

import (
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// A name that led to another node's server for a while, and leads to one of its own again, is of no
// consequence for a client that saw it. Meanwhile it is refused, and who observes is told that as the last.
func TestOneServerTwiceForAWhile(t *testing.T) {
	t.Parallel()
	servers := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, servers)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	locktest.Unlock(t, locktest.TryLock(t, client, "x"))

	proxies[1].Retarget(servers[0].Addr())
	proxies[1].Cut()
	locktest.Await(t, "the server is found behind two names", func() bool {
		lock, err := client.TryLock(t.Context(), "x")
		if err == nil {
			locktest.Unlock(t, lock)
			return false
		}
		return errors.Is(err, redlatch.ErrInvalid) && strings.Contains(err.Error(), "vote twice")
	})

	told := 0
	for holder, err := range client.Observe(locktest.Within(t, locktest.Patience), "x") {
		if told++; told > 1 || !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("an observer is told: %v, %v", holder, err)
			break
		}
	}
	if told == 0 {
		t.Error("an observer is not told")
	}
	if _, err := oneshot.New(client).Take(t.Context(), "x", "id", locktest.TTL); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("a one-shot call: %v", err) // Close, at the end, does not wait for it
	}

	proxies[1].Retarget(servers[1].Addr())
	proxies[1].Cut()
	locktest.Await(t, "a lock is granted again", func() bool {
		lock, err := client.TryLock(t.Context(), "x")
		if err != nil {
			return false
		}
		locktest.Unlock(t, lock)
		return true
	})
}
