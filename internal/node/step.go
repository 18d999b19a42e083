package node

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Acquire asks the node for the record. A grant under a number that no fence counter can be is
// undone, and no grant.
func (n *Node) Acquire(ctx context.Context, c vote.Claim) vote.Answer {
	a := n.acquire(ctx, c)
	if a.Verdict == vote.Granted && !isCounter(a.Token) {
		c.Place = vote.Place{}
		n.Release(ctx, c)
		return badCounter(c.Counter, a.Token)
	}
	return a
}

// acquire is Acquire, whatever the counter is.
func (n *Node) acquire(ctx context.Context, c vote.Claim) vote.Answer {
	defer n.gatherer.exit()
	if n.gatherer.enter(n.options.Crowd) && n.isSimple(&c) {
		if a, ok := n.acquireInCrowd(&c); ok {
			return a
		}
	}
	ttl, proposed := decimals(uint64(c.TTL.Milliseconds()), c.Proposed+c.More)
	seconds := proposed[:max(0, len(proposed)-6)]
	const nkeys, usual, expected = 4, 14, 6
	command := append(make([]string, 0, usual), c.Record, c.Counter, n.admissionKey, c.Next,
		script.Acquire, c.ID, ttl, proposed, seconds, n.counterTTL, "")
	switch {
	case c.Reused:
		command = append(command, "=")
	case c.PushIn:
		command = append(command, "*")
	case c.Place.Waiter != "":
		command = append(command, c.Place.Waiter)
	case c.From != "" || c.More > 0:
		command = append(command, "")
	}
	if c.From != "" || c.More > 0 {
		command = append(command, c.From)
	}
	if c.More > 0 {
		command = append(command, strconv.FormatUint(c.Proposed, 10))
	}
	keys, args := command[:nkeys:nkeys], command[nkeys:]
	reply, err := n.voteAdmitted(ctx, keys, args, expected, 0)
	a := granted(reply, ofAnotherKind(err))
	// The counter alone is what a hand-over usually is answered with.
	a.Transferred = a.Transferred || a.Verdict == vote.Granted && c.From != "" && reply.Kind == driver.Int
	return a
}

// Extend prolongs the record. A node that is kept out extends nothing either: the record of a
// client with other settings may outlast its quarantine.
func (n *Node) Extend(ctx context.Context, c vote.Claim) vote.Answer {
	keys := []string{c.Record, c.Counter, n.admissionKey}
	args := []string{script.Extend, c.ID, milliseconds(c.TTL), strconv.FormatUint(c.Token, 10), n.counterTTL, ""}
	return answer(n.voteAdmitted(ctx, keys, args, 5, -1))
}

// Confirm stores the claim's token on a node that granted under a smaller one.
func (n *Node) Confirm(ctx context.Context, c vote.Claim, granted uint64) vote.Answer {
	keys := []string{c.Record, c.Counter}
	args := []string{script.Confirm, c.ID, strconv.FormatUint(granted, 10), strconv.FormatUint(c.Token, 10), n.counterTTL}
	return n.standing(n.vote(ctx, keys, args, 0))
}

// Repair gives the record back to its holder on a node that lost it.
func (n *Node) Repair(ctx context.Context, c vote.Claim) vote.Answer {
	keys := []string{c.Record, c.Counter, n.admissionKey}
	args := []string{script.Repair, c.ID, milliseconds(c.TTL), strconv.FormatUint(c.Token, 10), n.counterTTL, ""}
	return answer(n.voteAdmitted(ctx, keys, args, 5, -1))
}

// Release deletes the record if it is the claim's. When no answer comes, or the server
// cannot do it now, the node goes on trying in the background until the TTL has removed the record.
func (n *Node) Release(ctx context.Context, c vote.Claim) vote.Answer {
	reply, err := n.release(ctx, c)
	a := answer(reply, err)
	a.Waiting = reply.Int == 2
	if a.Verdict == vote.Unknown || a.Verdict == vote.NotSent || a.Verdict == vote.Unavailable {
		c.Place, c.Token, c.Transfer = vote.Place{}, 0, false
		l := leftover{claim: c, gone: time.Now().Add(c.TTL)}
		if n.life.Err() == nil && n.leftovers.add(l) {
			n.background.Go(n.workOff)
		}
	}
	return a
}

// release runs the release script.
func (n *Node) release(ctx context.Context, c vote.Claim) (driver.Reply, error) {
	defer n.gatherer.exit()
	if n.gatherer.enter(n.options.Crowd) && isSimpleRelease(&c) {
		if reply, ok, err := n.releaseInCrowd(&c); ok {
			return reply, err
		}
	}
	const nkeys, usual = 3, 6
	command := append(make([]string, 0, usual), c.Record, c.Counter, c.Next,
		c.ID, strconv.FormatUint(c.Token, 10), n.counterTTL)
	switch {
	case c.Transfer:
		command = append(command, ">")
	case c.Place.Waiter != "":
		command = append(command, c.Place.Waiter, strconv.FormatUint(c.Place.Ticket, 10))
	}
	keys, args := command[:nkeys:nkeys], command[nkeys:]
	if err := n.connect(ctx); err != nil {
		return driver.Reply{}, err
	}
	flight := n.flight.Load()
	return n.send(ctx, flight, flight.releases, func() (driver.Reply, error) {
		// It gives nothing away, and any server may load it.
		reply, err := n.conn.EvalSHA(ctx, script.Releasing.SHA, keys, args)
		if isNoScript(err) {
			reply, err = eval(ctx, n.conn, script.Releasing.Text, keys, args)
		}
		return reply, err
	})
}
