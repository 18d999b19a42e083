package redisconn

import (
	"context"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// seekPause is how long an address is not tried again, which may lead to a replica for good.
const seekPause = time.Second

// Seek implements driver.Seeker.
//
// Without Sentinels the address may lead to a new master by now, as a name in DNS does, while the connection to
// the former one stands. Where it does not, the connection is left alone: the server may be the master again soon,
// and who waits there would be refused.
func (c *Conn) Seek(ctx context.Context) bool {
	if c.sentinels != nil || c.leadsToMaster(ctx) {
		c.leave(func(string) bool { return true })
	}
	return c.sentinels != nil
}

var _ driver.Seeker = (*Conn)(nil)

// leadsToMaster reports whether a further connection, which it makes and ends, is one to a master. It does not ask
// again before seekPause is over.
func (c *Conn) leadsToMaster(ctx context.Context) bool {
	c.mu.Lock()
	due := time.Since(c.sought) >= seekPause
	if due {
		c.sought = time.Now()
	}
	c.mu.Unlock()
	if !due {
		return false
	}
	further, err := New(c.options)
	if err != nil {
		return false
	}
	defer further.Close()
	defer further.Cut()
	reply, err := further.Do(ctx, "INFO", "replication")
	return err == nil && strings.Contains(reply.Text, "role:master\r\n")
}
