package node

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Acquire asks the node for the key. A grant under a number that cannot be a token counter is
// undone, and does not count.
func (n *Node) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	keys, args := n.acquireCommand(&r)
	keys = n.ofKind(keys, args, r.With, r.Shared)
	reply, err := n.vote(ctx, votingStep{keys: keys, args: args, expected: 6, refusal: 0})
	a := granted(reply, ofAnotherKind(err))
	switch {
	// rule: counter-bounded
	case a.Verdict == vote.Granted && !isCounter(a.Counter):
		n.Release(ctx, vote.Release{Key: r.Key, With: r.With, ID: r.ID, TTL: r.TTL, Shared: r.Shared})
		return badCounter(CounterKey(r.Key), a.Counter)
	case a.Verdict == vote.Granted:
		// A transfer is usually answered with the counter alone.
		a.Transferred = a.Transferred || r.From != "" && reply.Kind == driver.Int
		n.noteVote()
	case a.Verdict == vote.Held:
		n.noteVote()
	}
	return a
}

// acquireCommand returns the keys and arguments of the acquire step.
func (n *Node) acquireCommand(r *vote.Acquire) (keys, args []string) {
	proposed := strconv.FormatUint(r.Proposed+uint64(r.More), 10)
	seconds := proposed[:max(0, len(proposed)-6)]
	const nkeys, usual = 4, 14
	command := append(make([]string, 0, usual), r.Key, CounterKey(r.Key), n.admissionKey, NextKey(r.Key),
		script.Acquire, r.ID, milliseconds(r.TTL), proposed, seconds, n.counterTTL, "")
	further := r.From != "" || r.More > 0 || r.With != nil // arguments come behind the waiter's
	switch {
	case r.Reused:
		command = append(command, "=")
	case r.Barge:
		command = append(command, "*")
	case r.Ticket.Waiter != "" || further:
		command = append(command, r.Ticket.Waiter)
	}
	if further {
		command = append(command, r.From)
	}
	switch {
	case r.With != nil:
		command = append(command, strconv.FormatUint(r.Ticket.Number, 10))
		if r.Froms != nil {
			command = append(command, *r.Froms...)
		}
	case r.More > 0:
		command = append(command, strconv.FormatUint(r.Proposed, 10))
	}
	return command[:nkeys:nkeys], command[nkeys:]
}

// ofKind turns a step for one key and one holder, given by its keys and arguments, into one for several
// keys or into a reader's, where it is one of these. It returns the keys, and changes args in place.
func (n *Node) ofKind(keys, args []string, with *vote.Keys, reader bool) []string {
	switch {
	case with != nil:
		return n.together(keys, args, *with)
	case reader:
		return shared(keys, args)
	}
	return keys
}

// Extend prolongs the key. A node that is kept out does not extend either: the key of a client with
// other settings may outlast the node's quarantine.
func (n *Node) Extend(ctx context.Context, r vote.Extend) vote.Answer {
	return n.extend(ctx, r, n.options.Patience)
}

// extend is Extend for which a command may have been unanswered for patience.
func (n *Node) extend(ctx context.Context, r vote.Extend, patience time.Duration) vote.Answer {
	keys := []string{r.Key, CounterKey(r.Key), n.admissionKey}
	args := []string{script.Extend, r.ID, milliseconds(r.TTL), strconv.FormatUint(r.Token, 10), n.counterTTL, ""}
	step := votingStep{keys: n.ofKind(keys, args, r.With, r.Shared), args: args, expected: 5, refusal: -1, patience: patience}
	return answer(n.vote(ctx, step))
}

// Confirm stores the token on a node that granted under a smaller one.
func (n *Node) Confirm(ctx context.Context, r vote.Confirm) vote.Answer {
	keys := []string{r.Key, CounterKey(r.Key)}
	args := []string{script.Confirm, r.ID, strconv.FormatUint(r.Granted, 10), strconv.FormatUint(r.Token, 10), n.counterTTL}
	return n.unlessScriptIsGone(n.vote(ctx, votingStep{keys: n.ofKind(keys, args, r.With, r.Shared), args: args}))
}

// Repair gives the key back to its holder on a node that lost it.
func (n *Node) Repair(ctx context.Context, r vote.Extend) vote.Answer {
	keys := []string{r.Key, CounterKey(r.Key), n.admissionKey}
	args := []string{script.Repair, r.ID, milliseconds(r.TTL), strconv.FormatUint(r.Token, 10), n.counterTTL, ""}
	return answer(n.vote(ctx, votingStep{keys: n.ofKind(keys, args, r.With, r.Shared), args: args, expected: 5, refusal: -1}))
}

// Release deletes the key if it is held under the ID. When no answer comes, or the server cannot do
// it now, the node goes on trying in the background until the TTL has removed the key.
func (n *Node) Release(ctx context.Context, r vote.Release) vote.Answer {
	reply, err := n.release(ctx, r)
	return n.released(r, reply, err)
}

// released returns the answer to a release step. If none came, the node goes on trying.
func (n *Node) released(r vote.Release, reply driver.Reply, err error) vote.Answer {
	a := answer(reply, err)
	a.Woken = reply.Int == 2
	if !isFinal(err) {
		again := vote.Release{Key: r.Key, With: r.With, ID: r.ID, TTL: r.TTL, Shared: r.Shared}
		c := cleanUp{request: again, gone: time.Now().Add(driver.LongestUnanswered + r.TTL)}
		if n.life.Err() == nil && n.cleanUps.add(c) {
			n.cleaning.Go(n.workOff)
		}
	}
	return a
}

// release runs the release script.
func (n *Node) release(ctx context.Context, r vote.Release) (driver.Reply, error) {
	const nkeys, usual = 3, 8
	command := append(make([]string, 0, usual), r.Key, CounterKey(r.Key), NextKey(r.Key),
		r.ID, strconv.FormatUint(r.Token, 10), n.counterTTL)
	queue, _, _, slot := CutSlot(r.Key)
	switch {
	case r.Transfer && !slot:
		command = append(command, ">")
	case r.Ticket.Waiter != "":
		command = append(command, r.Ticket.Waiter, strconv.FormatUint(r.Ticket.Number, 10))
	}
	keys, args := command[:nkeys:nkeys], command[nkeys:]
	releasing := &script.Releasing
	switch {
	case r.With != nil:
		keys, releasing = n.keysOfAll(r.Key, *r.With), &script.ReleasingAll
	case r.Shared:
		keys, releasing = append(keys, ReadersKey(r.Key)), &script.ReleasingShared
	case slot:
		keys, releasing = []string{r.Key, CounterKey(r.Key), queue, NextKey(queue)}, &script.ReleasingSlot
	}
	if err := n.readyToRelease(ctx); err != nil {
		return driver.Reply{}, err
	}
	// The script gives nothing away, so any server may load it.
	reply, err := n.conn.EvalSHA(ctx, releasing.SHA, keys, args)
	if isNoScript(err) {
		reply, err = eval(ctx, n.conn, releasing.Text, keys, args)
	}
	return reply, n.ended(ctx, n.inFlight, n.inFlight.releases, err)
}

// readyToRelease waits until a release may be sent. ended must follow, unless there is an error. A release is also sent to a node
// with unanswered commands, and to one that refuses WAIT: no replica has to acknowledge it.
func (n *Node) readyToRelease(ctx context.Context) error {
	err := n.Connect(ctx)
	if _, refused := errors.AsType[noWait](err); err != nil && !refused {
		return err
	}
	return n.inFlight.releases.take(ctx)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// eval sends a script by its text. It is only for scripts that give nothing away.
func eval(ctx context.Context, conn driver.Conn, text string, keys, args []string) (driver.Reply, error) {
	command := append([]string{"EVAL", text, strconv.Itoa(len(keys))}, keys...)
	return conn.Do(ctx, append(command, args...)...)
}
