package redisconn

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

var _ driver.Listener = (*Conn)(nil)

// Subscribe implements driver.Listener. It uses the connection of the commands, which needs RESP3:
// without that the client opens another connection.
func (c *Conn) Subscribe(ctx context.Context, channel string, ready func(), heard func(message string)) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			ready()
		}
	})
	cmd := c.client.B().Subscribe().Channel(channel).Build()
	err := c.client.Receive(ctx, cmd, func(m rueidis.PubSubMessage) { heard(m.Message) })
	return refusal(err)
}

// EvalSHAWatching implements driver.Watcher.
func (c *Conn) EvalSHAWatching(ctx context.Context, sha string, keys, args []string) (driver.Reply, bool, error) {
	return c.watching(ctx, c.evalSHA(sha, keys, args))
}

// DoWatching implements driver.Watcher.
func (c *Conn) DoWatching(ctx context.Context, args ...string) (driver.Reply, bool, error) {
	return c.watching(ctx, c.command(args...))
}

func (c *Conn) watching(ctx context.Context, cmd rueidis.Completed) (driver.Reply, bool, error) {
	if err := c.ready(ctx); err != nil {
		return driver.Reply{}, false, err
	}
	number := c.depart()
	results := c.sendTogether(ctx, watch(c.client, cmd)...)
	reply, err := c.reply(results[2])
	c.arrive(ctx, number, err)
	return reply, c.isWatched(results), err
}
