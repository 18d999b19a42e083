package redlatch

import (
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/script"
)

// settling is how soon a lock that a release granted is extended to its TTL: one that is
// released before saves the command.
const settling = 10 * time.Millisecond

// bid is what a release may grant the lock for before this call has heard of it, where one
// node decides and the lock is renewed: for so short that nobody is held up for long if it
// does not hear of it, and for long enough that the lock can be extended, once it does, before
// its guard begins.
func (c *call) bid() ballot.Claim {
	r := &c.request
	if len(c.client.nodes) > 1 || !r.renewal || r.maxHold < r.ttl {
		return ballot.Claim{}
	}
	claim := c.claim()
	claim.TTL = min(r.ttl, r.guard+2*script.Grace+c.client.config.NodeTimeout).Truncate(time.Millisecond)
	return claim
}

// accept returns the lock that a release has granted to the bid of the place, if there is one
// and enough is left of it to extend it. Else an attempt takes over what was granted.
func (c *call) accept(q *queue) (lock *Lock, others bool) {
	if q.place == nil {
		return nil, false
	}
	bid, granted, ok := q.place.Granted()
	if !ok {
		return nil, false
	}
	answer := ballot.Answer{Verdict: ballot.Granted, Token: granted.Token, Waiting: granted.Waiting}
	least := c.request.guard + c.client.config.NodeTimeout + min(script.Grace/2, bid.TTL/8)
	hold, ok := c.client.engine.Accept(bid.Claim, bid.Sent, answer, least)
	if !ok {
		return nil, false
	}
	c.client.counters.tries.Add(1)
	q.place.Taken(answer)
	q.place = nil
	return c.hold(turnOf(hold)), granted.Waiting
}
