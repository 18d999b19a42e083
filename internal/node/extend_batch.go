package node

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// batchPatience is how long a command may be unanswered before the node is sent no more ExtendBatch
// commands.
const batchPatience = time.Second

// ExtendBatch is Extend for several keys by one command, with an answer for each key. It is not
// used where replicas are waited for. It has more time than other steps, and is still sent to a
// node where a command has been unanswered for longer than other steps allow.
func (n *Node) ExtendBatch(ctx context.Context, batch []vote.Extend) []vote.Answer {
	patience := max(n.options.Patience, batchPatience)
	if len(batch) == 1 {
		return []vote.Answer{n.extend(ctx, batch[0], patience)}
	}
	keys, args := make([]string, 1, 1+2*len(batch)), make([]string, 3, 3+3*len(batch))
	keys[0] = n.admissionKey
	args[0], args[1] = script.ExtendBatch, n.counterTTL
	for _, r := range batch {
		keys = append(keys, r.Key, CounterKey(r.Key))
		args = append(args, r.ID, milliseconds(r.TTL), strconv.FormatUint(r.Token, 10))
	}
	reply, err := n.vote(ctx, votingStep{keys: keys, args: args, expected: 2, refusal: -1, patience: patience})
	answers := make([]vote.Answer, len(batch))
	if driver.KeyDenied(err) { // perhaps one's alone, for which the server refuses the whole command
		var all sync.WaitGroup // one after the other would take too long where the server is far away
		for i, r := range batch {
			all.Go(func() { answers[i] = n.extend(ctx, r, patience) })
		}
		all.Wait()
		return answers
	}
	for i, r := range batch {
		switch {
		case err != nil || len(reply.Text) != len(batch):
			answers[i] = answer(reply, err)
		case reply.Text[i] == '1':
			answers[i].Verdict = vote.Granted
		case reply.Text[i] == '0':
			answers[i].Verdict = vote.NotOurs
		default:
			answers[i] = n.extend(ctx, r, patience) // the step of its own tells whose it is
		}
	}
	return answers
}
