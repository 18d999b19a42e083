package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Watch answers Held with the key's holder, or NotOurs when nobody has the key. watched: the first
// change of the key after that is told to Options.Changed. Where the server tells of no change,
// Left is how long the key stays. A node that is not admitted answers like any other.
func (n *Node) Watch(ctx, _ context.Context, key string) (a vote.Answer, watched bool) {
	values, watched, err := n.values(ctx, true, key)
	switch {
	case err != nil:
		return failure(err), false
	case values[0].Kind == driver.Null:
		return vote.Answer{Verdict: vote.NotOurs}, watched
	}
	a = vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(values[0].Text)}
	if !watched {
		// If another holder has it by now, that is noticed sooner.
		if left, err := n.command(ctx, "PTTL", key); err == nil {
			a.Left = max(0, time.Duration(left.Int)*time.Millisecond)
		}
	}
	return a, watched
}

// Read answers Held with the key's holder and, in Counter, its counter, 0 where there is none; or
// NotOurs when nobody has the key.
func (n *Node) Read(ctx context.Context, key string) vote.Answer {
	values, _, err := n.values(ctx, false, key, CounterKey(key))
	switch {
	case err != nil:
		return failure(err)
	case values[0].Kind == driver.Null:
		return n.unheld(ctx, key)
	}
	return holderIn(values[0], values[1])
}

// unheld answers for a key that has no string: NotOurs, or what the server says of a key of another type.
func (n *Node) unheld(ctx context.Context, key string) vote.Answer {
	if _, err := n.command(ctx, "GET", key); err != nil {
		return failure(ofAnotherKind(err))
	}
	return vote.Answer{Verdict: vote.NotOurs}
}

// ReadAll is Read for many keys in one hash slot, by one command. It returns an answer for each,
// and Granted if there are any. A key of another type counts as none. With watch, the first change
// of one of them after that is told to Options.Changed, if the server tells of any.
func (n *Node) ReadAll(ctx context.Context, keys []string, watch bool) ([]vote.Answer, vote.Answer) {
	all := slices.Clone(keys)
	for _, key := range keys {
		all = append(all, CounterKey(key))
	}
	values, _, err := n.values(ctx, watch, all...)
	if err != nil {
		return nil, failure(err)
	}
	answers := make([]vote.Answer, len(keys))
	for i := range answers {
		answers[i] = holderIn(values[i], values[len(keys)+i])
	}
	return answers, vote.Answer{Verdict: vote.Granted}
}

// values reads keys in one hash slot, as beginnings does. With watch, the first change of one of them
// after that is told to Options.Changed, if watched is set.
func (n *Node) values(ctx context.Context, watch bool, keys ...string) (values []driver.Reply, watched bool, err error) {
	values, err = beginnings(keys, func(command ...string) (driver.Reply, error) {
		seen, err := n.ready(ctx, n.inFlight, n.options.Patience)
		if err != nil {
			return driver.Reply{}, err
		}
		if errors.Is(seen.refusal, admission.ErrLater) { // whose keys may be others
			return driver.Reply{}, n.ended(ctx, n.inFlight, n.inFlight.votes, seen.refusal)
		}
		var reply driver.Reply
		if l, ok := n.conn.(driver.Watcher); ok && watch {
			reply, watched, err = l.DoWatching(ctx, command...)
		} else {
			reply, err = n.conn.Do(ctx, command...)
		}
		return n.answered(ctx, n.inFlight, seen, reply, err)
	})
	return values, watched, err
}

// beginnings reads of each key the beginning, Null where it has no string. A key with a lock's name
// may be a foreign program's, with a value that would keep all other answers on the connection
// waiting, or break it.
func beginnings(keys []string, do func(command ...string) (driver.Reply, error)) ([]driver.Reply, error) {
	reply, err := do(append([]string{"EVAL", script.Look.Text, strconv.Itoa(len(keys))}, keys...)...)
	switch {
	case isUnable(err) && len(keys) == 1: // without scripts the value comes whole
		reply, err = do("GET", keys[0])
		return []driver.Reply{reply}, err
	case isUnable(err):
		reply, err = do(append([]string{"MGET"}, keys...)...)
	}
	if err == nil && len(reply.Array) != len(keys) {
		err = fmt.Errorf("%d keys were read, and the server answered %v", len(keys), reply)
	}
	return reply.Array, err
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
