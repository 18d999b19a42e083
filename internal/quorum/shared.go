package quorum

import (
	"context"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// agreed is asked for a reader. Where its votes are won it waits for the answer of the node that
// keeps the wait queue: at most for as long again as the quorum took. It reports false if that node says
// that a writer comes first, or if ctx is done; silence is no objection. A writer needs no such answer to
// get its turn, because those who hold exclude it and not those who wait. But of many readers at a
// time some would always hear that node last, and a writer would wait for ever.
//
// rule: arbiter-heard
func (k *keys) agreed(ctx context.Context, t *tally, votes <-chan stepAnswer, start clock.Instant) bool {
	var patience <-chan struct{}
	for t.held() && k.unheard(t) {
		if patience == nil {
			patience = k.engine.patience(start)
		}
		select {
		case v := <-votes:
			if v.confirm {
				continue
			}
			t.acquired(v.node, v.answer)
			if k.yields(v.answer) {
				return false
			}
		case <-patience:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// unheard reports whether the node that keeps the queue has yet to answer. That is the first of the
// nodes that may keep it, but for those that are known not to vote.
func (k *keys) unheard(t *tally) bool {
	for _, i := range k.request.Arbiters {
		if t.nodes[i].state == pending {
			return true
		}
		if v := k.Answer(i).Verdict; v == vote.Granted || v == vote.Held {
			return false
		}
	}
	return false
}
