package topology

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/storm"
)

// deafAt is a Cluster's connection on which only the first of three masters says what it has recorded.
type deafAt struct {
	*redisconn.Cluster
	others *atomic.Bool
}

func (c deafAt) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if c.others.Load() && len(args) > 3 && args[1] == script.Inspect.Text && strings.Contains(args[3], ":deployment:") && storm.SlotOf(args[3]) > 5460 {
		return driver.Reply{}, errors.New("cut off")
	}
	return c.Cluster.Do(ctx, args...)
}

// A master has lost its keys, and with them what the deployment's clients agreed on. A client with a shorter MaxTTL
// comes that cannot ask the other masters for that at first. It records nothing: else its own word would count
// from then on, and its quarantine would be over while a lock that the master forgot is held.
func TestClusterNewcomerThatCannotAsk(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, time.Minute)
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		for i := range c.Masters {
			locktest.Unlock(t, locktest.TryLock(t, holder, storm.NameAt(i)))
		}
		held := locktest.TryLock(t, holder, storm.NameAt(0))
		locktest.Do(t, c.Masters[0], "FLUSHALL")

		config, cut := c.config, new(atomic.Bool)
		config.MaxTTL, config.TTL = time.Second, time.Second
		newcomer := locktest.OpenIn(t, config, hook.Surroundings{Dial: func(string) (driver.Conn, error) {
			options, _, err := redisconn.Parse(c.config.Nodes[0])
			options.ConnectTimeout = locktest.Patience
			return deafAt{redisconn.NewCluster(options), cut}, err
		}})
		cut.Store(true)
		locktest.Await(t, "it could not ask the others", func() bool {
			_, err := newcomer.TryLock(t.Context(), held.Name())
			return err != nil && strings.Contains(err.Error(), "too few others answer")
		})
		cut.Store(false)
		locktest.Await(t, "it has asked them", func() bool {
			_, err := newcomer.TryLock(t.Context(), held.Name())
			if err == nil && held.Err() == nil {
				t.Fatalf("the lock has two holders: the first for another %v", time.Until(held.Until()))
			}
			return errors.Is(err, redlatch.ErrInvalid)
		})
	})
}
