package redisconn

import (
	"context"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

var _ driver.Watcher = (*Cluster)(nil)

// notices tells of changes to keys that were watched.
type notices struct {
	told atomic.Pointer[func(key string)]
	// mute: the server was last asked to speak RESP2, in which it confirms that it watches a key and
	// tells of no change.
	mute atomic.Bool
}

// OnChange implements driver.Watcher.
func (c *notices) OnChange(changed func(key string)) { c.told.Store(&changed) }

// invalidated is called with changed keys, and with none when all tracking has ended, as it does
// with its connection.
func (c *notices) invalidated(keys []rueidis.RedisMessage) {
	changed := c.told.Load()
	if changed == nil {
		return
	}
	if len(keys) == 0 {
		(*changed)("")
	}
	for _, key := range keys {
		if name, err := key.ToString(); err == nil {
			(*changed)(name)
		}
	}
}

// watch makes the server tell of changes to the keys that cmd reads, by client tracking (Redis
// documentation, "Client-side caching in Redis": OPTIN, NOLOOP). The three commands are written
// together, so that no other comes between them.
func watch(client rueidis.Client, cmd rueidis.Completed) []rueidis.Completed {
	return []rueidis.Completed{
		client.B().Arbitrary("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP").Build(),
		client.B().Arbitrary("CLIENT", "CACHING", "YES").Build(),
		cmd,
	}
}

// isWatched reports whether the server will tell of changes, given the results of the commands that
// watch returned.
func (c *notices) isWatched(results []rueidis.RedisResult) bool {
	return results[0].Error() == nil && results[1].Error() == nil && !c.mute.Load()
}

// EvalSHAWatching implements driver.Watcher.
func (c *Cluster) EvalSHAWatching(ctx context.Context, sha string, keys, args []string) (driver.Reply, bool, error) {
	return c.DoWatching(ctx, driver.EvalSHA(sha, keys, args)...)
}

// DoWatching implements driver.Watcher, on the connection to the master that has the slot. When
// that breaks, every key may have changed. A slot that moves takes its keys with it, which its
// former master reports as a change.
func (c *Cluster) DoWatching(ctx context.Context, args ...string) (driver.Reply, bool, error) {
	there := false // read only after an answer
	reply, err := c.DoBy(ctx, func(ctx context.Context, args []string) (driver.Reply, error) {
		client, err := c.usable(ctx)
		if err != nil {
			return driver.Reply{}, err
		}
		before := c.redirections.Load()
		results := client.DoMulti(context.WithoutCancel(ctx), watch(client, keyed(client, args))...)
		// A command that was redirected went on alone, to a server that was not told to watch.
		there = c.isWatched(results) && c.redirections.Load() == before
		return redirected(outcome(results[2]))
	}, args...)
	return reply, err == nil && there, err
}
