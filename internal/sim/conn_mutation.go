package sim

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// mutated is exchange with one rule broken.
func (c *Conn) mutated(ctx context.Context, args []string) (driver.Reply, error) {
	w := c.machine.world
	step := stepOf(args)
	switch w.Mutation {
	case DriftIgnored:
		args = shortened(args, step)
	case OneHolderID:
		args = renamed(args, step)
	case ReachableQuorum:
		if len(step) > 1 && c.machine.excused(c) {
			return driver.Reply{Kind: driver.Int, Int: 1}, nil
		}
	}
	return c.exchange(ctx, args)
}

// shortened takes the drift off a step's TTL.
func shortened(args, step []string) []string {
	if len(step) < 3 || step[0] != script.Acquire && step[0] != script.Extend && step[0] != script.Repair {
		return args
	}
	ms, _ := strconv.Atoi(step[2])
	ttl := time.Duration(ms) * time.Millisecond
	ttl -= ttl/100 + 2*time.Millisecond
	args = slices.Clone(args)
	args[len(args)-len(step)+2] = strconv.FormatInt(max(1, ttl.Milliseconds()), 10)
	return args
}

// renamed gives all attempts of a call one holder id.
func renamed(args, step []string) []string {
	at := len(args) - len(step) + 1
	if len(step) < 2 || step[0] == script.Admit || step[0] == script.Enqueue || args[1] == script.Mark.Text {
		return args
	}
	args = slices.Clone(args)
	// What differs between attempts is before the label.
	args[at] = strings.Repeat("x", 26) + ".0." + labelOf(args[at])
	return args
}

// repeatGrant has a grant that came from c count for the other nodes that the
// same attempt asked. The caller holds world.mu.
func (m *Machine) repeatGrant(c *Conn, r *request) {
	ids := r.acquiring()
	if m.world.Mutation != ReplyCountedTwice || len(ids) != 1 || r.err != nil || r.reply.Kind != driver.Int || r.reply.Int <= 0 {
		return
	}
	for _, other := range m.conns {
		if other == c || other.stream == nil {
			continue
		}
		for _, waiting := range other.stream.waiting {
			if slices.Equal(waiting.acquiring(), ids) {
				waiting.finish(r.reply, nil)
				return
			}
		}
	}
}

// excused reports whether c's node is left out of the count of the nodes that
// make a quorum, because it cannot be reached: its vote is then as good as
// given.
func (m *Machine) excused(c *Conn) bool {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	var out []*Conn
	for _, conn := range m.conns {
		if conn.node.server == nil || conn.node.hung || now < conn.path.thereUntil || now < conn.path.backUntil {
			out = append(out, conn)
		}
	}
	n := len(m.conns)
	gifts := (n/2 + 1) - ((n-len(out))/2 + 1)
	i := slices.Index(out, c)
	return len(out) < n && i >= 0 && i < gifts
}
