package redisconn

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

// Do implements driver.Conn.
func (c *Conn) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	return c.send(ctx, c.command(args...))
}

// EvalSHA implements driver.Conn.
func (c *Conn) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	return c.send(ctx, c.evalSHA(sha, keys, args))
}

func (c *Conn) evalSHA(sha string, keys, args []string) rueidis.Completed {
	return c.client.B().Evalsha().Sha1(sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (c *Conn) send(ctx context.Context, cmd rueidis.Completed) (driver.Reply, error) {
	if err := c.ready(ctx); err != nil {
		return driver.Reply{}, err
	}
	number := c.depart()
	var result rueidis.RedisResult
	if c.before.Load() == nil {
		result = c.client.Do(ctx, cmd)
	} else {
		result = c.sendTogether(ctx, cmd)[0]
	}
	reply, err := c.reply(result)
	c.arrive(ctx, number, err)
	return reply, err
}

// ready returns an error, which wraps driver.ErrNotSent, when a command must not be sent: ctx is
// done or, where there are Sentinels, they named the server too long ago.
func (c *Conn) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return driver.NotSent(context.Cause(ctx))
	}
	if c.sentinels == nil {
		return nil
	}
	if err := c.sentinels.recent(); err != nil {
		return driver.NotSent(err)
	}
	return nil
}

// predecessor is a command that must be executed before what is sent next, on the connection of
// that generation: another connection may lead to another run of the server.
type predecessor struct {
	generation uint64
	command    []string
}

// sendTogether sends commands with no other's between them, and before them the predecessor, if
// there is one.
func (c *Conn) sendTogether(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	first := c.before.Load()
	if first != nil && first.generation != c.changes.Load() {
		c.before.CompareAndSwap(first, nil)
		first = nil
	}
	if first == nil {
		return c.client.DoMulti(ctx, commands...)
	}
	results := c.client.DoMulti(ctx, append(rueidis.Commands{c.command(first.command...)}, commands...)...)
	if results[0].Error() == nil {
		c.before.CompareAndSwap(first, nil)
	}
	return results[1:]
}

// depart counts a command for the pipeline, or several that go together. Each depart is followed by
// an arrive.
func (c *Conn) depart() (number uint64) {
	underWay.Add(1)
	c.waiting.Add(1)
	return c.sent.Add(1)
}

// arrive takes in the outcome of the command. Replies come in order, and a command gets its number
// before it is sent. So the reply to a number larger than abandoned comes after those to all
// commands that were abandoned.
func (c *Conn) arrive(ctx context.Context, number uint64, err error) {
	if hasReply(err) {
		if left := c.abandoned.Load(); left > 0 && number > left {
			c.abandoned.CompareAndSwap(left, 0)
		}
	} else if ctx.Err() != nil {
		for now := c.sent.Load(); ; {
			left := c.abandoned.Load()
			if left >= now || c.abandoned.CompareAndSwap(left, now) {
				break
			}
		}
	}
	c.waiting.Add(-1)
	underWay.Add(-1)
}

// Batch implements driver.Batcher.
func (c *Conn) Batch(ctx context.Context, commands ...[]string) ([]driver.Reply, []error) {
	replies, errs := make([]driver.Reply, len(commands)), make([]error, len(commands))
	if err := c.ready(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return replies, errs
	}
	built := make(rueidis.Commands, len(commands))
	for i, args := range commands {
		built[i] = c.command(args...)
	}
	number := c.depart()
	for i, result := range c.sendTogether(ctx, built...) {
		replies[i], errs[i] = c.reply(result)
	}
	c.arrive(ctx, number, errs[len(errs)-1])
	return replies, errs
}
