package quorum

import (
	"context"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// Now returns the current time, by the clocks on which validities are counted.
func (e *Engine) Now() clock.Instant { return e.clock.Now() }

// Accept is Acquire for an attempt that began at start, before node by was asked for its vote.
// given is that vote, a grant for the whole TTL. It counts as if the attempt had asked for it, and
// is undone likewise. The steps on the other nodes have their whole time from the call on.
//
// rule: validity-from-send
func (e *Engine) Accept(ctx context.Context, request vote.Acquire, start clock.Instant, by int, given vote.Answer) (*Lease, []vote.Answer) {
	// The round of the steps begins now, and the validity began at start.
	k := newKeys(e, request, e.clock.Now())
	k.nodes[by].answer, k.nodes[by].stored, k.nodes[by].key = given, given.Counter, ours
	return k.acquire(ctx, start, func(k *keys, ctx context.Context, i int) vote.Answer {
		if i != by {
			return k.acquireStep(ctx, i)
		}
		k.leave(i, func(*nodeState) {})
		return given
	})
}
