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
		if l, ok := n.conn.(driver.Watcher); ok {
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
	return holderIn(reply.Array[0], reply.Array[1])
}

// ReadAll is Read for many keys, which lie in one hash slot: an answer for each, in one command, and
// Granted if there are any. A key of another type is as good as none. With watch the first change of
// one of them after that is told to Options.Changed, where the server tells of any.
func (n *Node) ReadAll(ctx context.Context, keys []string, watch bool) ([]vote.Answer, vote.Answer) {
	command := append(make([]string, 0, 1+2*len(keys)), "MGET")
	command = append(command, keys...)
	for _, key := range keys {
		command = append(command, CounterKey(key))
	}
	reply, _, err := n.cast(ctx, func(*sighting) (driver.Reply, error) {
		if l, ok := n.conn.(driver.Watcher); ok && watch {
			reply, _, err := l.DoWatching(ctx, command...)
			return reply, err
		}
		return n.conn.Do(ctx, command...)
	})
	if err != nil || len(reply.Array) != 2*len(keys) {
		return nil, answer(reply, err)
	}
	answers := make([]vote.Answer, len(keys))
	for i := range answers {
		answers[i] = holderIn(reply.Array[i], reply.Array[len(keys)+i])
	}
	return answers, vote.Answer{Verdict: vote.Granted}
}

// holderIn is who has a key, by its value and its counter's.
func holderIn(value, counter driver.Reply) vote.Answer {
	if value.Kind == driver.Null {
		return vote.Answer{Verdict: vote.NotOurs}
	}
	token, err := strconv.ParseUint(counter.Text, 10, 53)
	if err != nil {
		token = 0 // no client has written it
	}
	return vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(value.Text), Token: token}
}
