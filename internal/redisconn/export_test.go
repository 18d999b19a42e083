package redisconn

import (
	"context"

	"github.com/redlatch/redlatch/internal/driver"
)

// Hasty is a Conn with a direct connection, which all commands that are alone go by, and that
// is made anew after each answer that finds none.
type Hasty struct{ *Direct }

// NewHasty returns c with a direct connection.
func NewHasty(c *Conn) Hasty { return Hasty{NewDirect(c).(*Direct)} }

// Do implements driver.Conn.
func (h Hasty) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if err := ctx.Err(); err != nil {
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
	if x := h.alone(); x != nil {
		return h.sendAlone(ctx, x, h.command(args...))
	}
	reply, err := h.Conn.Do(ctx, args...)
	if err == nil && h.fast.Load() == nil && h.before.Load() == nil {
		h.connect()
	}
	return reply, err
}
