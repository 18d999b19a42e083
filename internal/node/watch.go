package node

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// Watch answers Held with who has the key, or NotOurs when nobody has. watched: the first change
// of the key after that is told to Options.Changed. Where the server tells of none, Left says for how
// long the key stays. A node that is not admitted answers as any other.
func (n *Node) Watch(ctx, _ context.Context, key string) (a vote.Answer, watched bool) {
	reply, _, err := n.cast(ctx, func(*sighting) (reply driver.Reply, err error) {
		if l, ok := n.conn.(driver.Listener); ok {
			reply, watched, err = l.DoWatching(ctx, "GET", key)
			return reply, err
		}
		return n.conn.Do(ctx, "GET", key)
	})
	switch {
	case err != nil:
		return failure(err), false
	case reply.Kind == driver.Null:
		return vote.Answer{Verdict: vote.NotOurs}, watched
	}
	a = vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(reply.Text)}
	if !watched {
		// If it is another's by now, that is seen the sooner.
		if left, err := n.command(ctx, "PTTL", key); err == nil {
			a.Left = max(0, time.Duration(left.Int)*time.Millisecond)
		}
	}
	return a, watched
}

// Read answers Held with who has the key and the counter in Token, 0 where there is none, or NotOurs.
func (n *Node) Read(ctx context.Context, key string) vote.Answer {
	reply, err := n.command(ctx, "MGET", key, CounterKey(key))
	if err != nil || len(reply.Array) != 2 {
		return answer(reply, err)
	}
	if reply.Array[0].Kind == driver.Null {
		// MGET says nothing for a key of another type: let the server say what it is.
		if _, err := n.command(ctx, "GET", key); err != nil {
			return failure(err)
		}
		return vote.Answer{Verdict: vote.NotOurs}
	}
	token, err := strconv.ParseUint(reply.Array[1].Text, 10, 53)
	if err != nil {
		token = 0 // no client has written it
	}
	return vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(reply.Array[0].Text), Token: token}
}
