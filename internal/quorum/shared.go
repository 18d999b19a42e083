package quorum

import (
	"context"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// agreed waits, where a reader's votes are won, for the answer of the node that keeps the wait queue: as
// long again as the quorum took, at most. It reports false where that one says that a writer comes
// first, or ctx is done; silence is no objection. A writer is excluded by those who hold, not by those
// who wait: so it needs no such answer to get its turn, but of many readers at a time some would always
// hear that node last, and a writer would wait for ever.
//
// rule: arbiter-heard
func (k *keys) agreed(ctx context.Context, t *tally, votes <-chan stepAnswer, answered *int, start clock.Instant) bool {
	var patience <-chan struct{}
	for k.request.Shared && t.held() && k.unheard(t) {
		if patience == nil {
			patience = k.engine.patience(start)
		}
		select {
		case v := <-votes:
			if v.confirm {
				continue
			}
			*answered++
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

// unheard reports that the first node that may keep the queue, and was not heard to be out, has not
// answered yet.
func (k *keys) unheard(t *tally) bool {
	for _, i := range k.request.Queue {
		if t.nodes[i].state == pending {
			return true
		}
		if v := k.Answer(i).Verdict; v == vote.Granted || v == vote.Held {
			return false
		}
	}
	return false
}
