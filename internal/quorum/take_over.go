package quorum

import (
	"context"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/vote"
)

// TakeOver ends leases, each of which has one of the keys that request is for, and makes an attempt
// for request that replaces their keys by its own, so that nobody comes between. request.From and
// request.Froms are the holder ids of the leases. Keys that the attempt does not replace are
// released. The answers are those of Acquire.
//
// The attempt does not rest on the leases. They end before anything is sent, so that their keys may
// be replaced or go at any time after that; the votes, the validity and the counter, which is
// larger than theirs, are the attempt's own. Where a lease was lost and another holder has the key,
// the node refuses the attempt.
func (e *Engine) TakeOver(ctx context.Context, request vote.Acquire, leases []*Lease) (*Lease, []vote.Answer) {
	under := make([]sync.WaitGroup, len(e.voters)) // counts the leases' steps on each node
	ended := make([]*Lease, 0, len(leases))
	for _, l := range leases {
		for i := range under {
			under[i].Add(1)
		}
		idle, ok := l.end(transferred, func(i int) { under[i].Done() })
		if ok {
			ended = append(ended, l)
		}
		for i := range under {
			if !ok || !l.nodes[i].toRelease || slices.Contains(idle, i) {
				under[i].Done()
			}
		}
	}
	// rule: replaced-by-an-attempt
	start := e.clock.Now()
	request.Barge = true
	return newKeys(e, request, start).acquire(ctx, start, func(k *keys, ctx context.Context, i int) vote.Answer {
		under[i].Wait() // the steps of the leases come first
		a := k.acquireStep(ctx, i)
		for _, l := range ended {
			switch {
			case !l.nodes[i].toRelease:
			case a.Verdict == vote.Granted:
				l.releaseAnswered(i, a)
			default:
				// rule: failure-undone
				e.workers.run(func() { l.releaseStep(i) })
			}
		}
		return a
	})
}
