package restart

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// Clients of another version, whose voting script is another one, have voted on a server that has been up for long, and its keys
// went by commands that do not count. It is not taken for one that was never used.
func TestKeysDeletedAfterVotesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		const ttl = 8 * time.Second
		config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), ttl)
		awaitUptime(t, server, ttl+4*time.Second)
		locktest.Do(t, server, "EVAL", script.Voted(config.Deployment).Text, "0") // as after an admission by any version
		if lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Errorf("got %v, %v, want ErrNotAdmitted", lock, err)
		}
	})
}

// The first answers by which a server would tell that it has voted are lost, and its keys went by commands that do not count.
func TestNoAnswerWhetherTheServerHasVoted(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		const ttl = 20 * time.Second
		config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), ttl)
		awaitUptime(t, server, ttl+4*time.Second)
		held := locktest.TryLock(t, locktest.Open(t, config), "x", redlatch.WithoutRenewal())
		locktest.Do(t, server, "EVALSHA", script.Voted(config.Deployment).SHA, "0") // clients of other versions see it, too
		deleteAll(t, server)
		proxy := redistest.NewProxy(t, server.Addr())
		var asked atomic.Int64
		proxy.OnCommand(func(c redistest.Command) redistest.Action {
			if c.Name() == "EVALSHA" && len(c.Args) == 4 && asked.Add(1) <= 3 {
				return redistest.CutAfter
			}
			return redistest.Pass
		})
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, locktest.Through(config, "redis://"+proxy.Addr())), "x")
		locktest.IsKeptOut(t, held, lock, err)
		if n := asked.Load(); n <= 3 {
			t.Errorf("it was asked %d times", n)
		}
	})
}
