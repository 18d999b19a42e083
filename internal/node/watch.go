package node

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// Watch answers Held with the key's holder, or NotOurs when nobody has the key. watched: the first
// change of the key after that is told to Options.Changed. Where the server tells of no change,
// Left is how long the key stays. A node that is not admitted answers like any other.
func (n *Node) Watch(ctx, _ context.Context, key string) (a vote.Answer, watched bool) {
	reply, _, err := n.send(ctx, n.inFlight, func(*sighting) (reply driver.Reply, err error) {
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
		// If another holder has it by now, that is noticed sooner.
		if left, err := n.command(ctx, "PTTL", key); err == nil {
			a.Left = max(0, time.Duration(left.Int)*time.Millisecond)
		}
	}
	return a, watched
}

// Read answers Held with the key's holder and, in Token, its counter, 0 where there is none; or
// NotOurs when nobody has the key.
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

// ReadAll is Read for many keys in one hash slot, by one command. It returns an answer for each,
// and Granted if there are any. A key of another type counts as none. With watch, the first change
// of one of them after that is told to Options.Changed, if the server tells of any.
func (n *Node) ReadAll(ctx context.Context, keys []string, watch bool) ([]vote.Answer, vote.Answer) {
	command := append(make([]string, 0, 1+2*len(keys)), "MGET")
	command = append(command, keys...)
	for _, key := range keys {
		command = append(command, CounterKey(key))
	}
	reply, _, err := n.send(ctx, n.inFlight, func(*sighting) (driver.Reply, error) {
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

// holderIn answers who has a key, given its value and its counter's.
func holderIn(value, counter driver.Reply) vote.Answer {
	if value.Kind == driver.Null {
		return vote.Answer{Verdict: vote.NotOurs}
	}
	token, err := strconv.ParseUint(counter.Text, 10, 53)
	if err != nil {
		token = 0 // no client has written it
	}
	return vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(value.Text), Counter: token}
}
