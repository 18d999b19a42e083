package redlatch

import (
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/script"
)

// settling is how soon a lock that a release granted is extended to its TTL: one that is
// released before saves the command.
const settling = 10 * time.Millisecond

// bid is what a release may grant the lock for, on the node that keeps the line, before this
// call has heard of it, where the lock is renewed: for so short that nobody is held up for
// long if it does not hear of it, and for long enough that the lock can be extended, once it
// does, before its guard begins. Over several nodes callers who wait behind are served by the
// block of tokens of an attempt, which a release does not give.
func (c *call) bid(q *queue) ballot.Claim {
	r := &c.request
	if !r.renewal || r.maxHold < r.ttl || len(c.client.nodes) > 1 && c.client.queues.behind(q) > 0 {
		return ballot.Claim{}
	}
	claim := c.claim()
	claim.TTL = min(r.ttl, r.guard+2*script.Grace+c.client.config.NodeTimeout).Truncate(time.Millisecond)
	return claim
}

// accept makes the attempt for claim with the vote that a release has given to the bid of
// place. ok is false where there is none, or too little is left of it to extend it in time: an
// attempt of its own takes over what was granted.
func (c *call) accept(claim ballot.Claim, place *line.Place) (hold *quorum.Hold, votes []ballot.Answer, ok bool) {
	if place == nil {
		return nil, nil, false
	}
	bid, granted, ok := place.Granted()
	if !ok {
		return nil, nil, false
	}
	timeout := c.client.config.NodeTimeout
	if len(c.client.nodes) > 1 && c.client.clock.Now().Since(bid.Sent) > node.LongestAttempt-2*timeout {
		return nil, nil, false
	}
	// The other nodes are asked for what this one gave, which is as old as the bid at most.
	claim.ID, claim.Proposed, claim.More = bid.ID, granted.Token, 0
	grant := quorum.Grant{
		Voter: place.Arbiter(), Since: bid.Sent, TTL: bid.TTL,
		Answer: ballot.Answer{Verdict: ballot.Granted, Token: granted.Token, Waiting: granted.Waiting},
	}
	least := c.request.guard + timeout + min(script.Grace/2, bid.TTL/8)
	return c.client.engine.Accept(c.ctx, claim, grant, least)
}
