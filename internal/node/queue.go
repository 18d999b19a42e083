package node

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Enqueue takes a place in the wait queue for the key, or says that the waiter is still there, and
// returns the waiter's position. With r.Watch, a change of the key is told to Options.Changed where
// the server can tell of it. Redis 7.0 would not tell of slots, whose keys the step does not name.
func (n *Node) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	hears := n.listen(ctx)
	waiter, reads := strings.CutPrefix(vote.Waiter(r.Ticket.Waiter), vote.Reader)
	if hears {
		waiter = n.inSlot(waiter)
	} else {
		waiter = "-" + waiter
	}
	if reads {
		waiter = vote.Reader + waiter
	}
	keys := []string{r.Key, n.admissionKey, NextKey(r.Key)}
	args := []string{script.Enqueue, waiter, strconv.FormatUint(r.Ticket.Number, 10), ""}
	if r.Slots > 0 {
		args[0] = script.EnqueueSlot
		args = append(args, strconv.Itoa(int(r.Slots)))
	}
	watched := false
	var reply driver.Reply
	seen, err := n.ready(ctx, n.inFlight, n.options.Patience)
	if err == nil {
		args[3] = seen.expected
		if l, ok := n.conn.(driver.Watcher); ok && r.Watch && r.Slots == 0 {
			reply, watched, err = l.EvalSHAWatching(ctx, n.voting.SHA, keys, args)
		} else {
			reply, err = n.conn.EvalSHA(ctx, n.voting.SHA, keys, args)
		}
		reply, err = n.answered(ctx, n.inFlight, seen, reply, err)
	}
	p := vote.Position{Hears: hears, Watched: watched}
	p.Ticket.Waiter = waiter
	if err != nil || reply.Kind != driver.Array || len(reply.Array) < 4 {
		p.Answer = n.unlessScriptIsGone(reply, err)
		return p
	}
	p.Ticket.Number, err = strconv.ParseUint(reply.Array[1].Text, 10, 64)
	p.Answer = vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(reply.Array[2].Text), Left: time.Duration(reply.Array[3].Int) * time.Millisecond, Err: err}
	p.Ahead = int(reply.Array[0].Int)
	if len(reply.Array) > 4 {
		p.From = reply.Array[4].Text
	}
	return p
}

// Leave gives up the waiter's place. It waits for the answer or for ctx. A place that is not given
// up lapses.
func (n *Node) Leave(ctx context.Context, key, waiter string) {
	n.release(ctx, vote.Release{
		Key:    key,
		ID:     waiter, // no key has this value
		Ticket: vote.Ticket{Waiter: waiter},
	})
}

// HasWaiters reports whether anybody is in the wait queue for the key on this node. It waits
// for the answer or for ctx.
func (n *Node) HasWaiters(ctx context.Context, key string) (somebody bool, err error) {
	reply, err := n.command(ctx, "GET", NextKey(key))
	return reply.Kind != driver.Null, err
}
