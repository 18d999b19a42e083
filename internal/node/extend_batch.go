package node

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// batchPatience is for how long a node may owe an answer before it is asked to extend no more keys.
const batchPatience = time.Second

// ExtendBatch is Extend for several keys by one command, and answers one by one. There are no replicas
// to be waited for. It has more time than other steps have, and is sent to a node that owes an answer for longer.
func (n *Node) ExtendBatch(ctx context.Context, batch []vote.Extend) []vote.Answer {
	ctx = patient{ctx, max(n.options.Patience, batchPatience)}
	if len(batch) == 1 {
		return []vote.Answer{n.Extend(ctx, batch[0])}
	}
	keys, args := make([]string, 1, 1+2*len(batch)), make([]string, 3, 3+3*len(batch))
	keys[0] = n.admissionKey
	args[0], args[1] = script.ExtendBatch, n.counterTTL
	for _, r := range batch {
		ttl, token := decimals(uint64(r.TTL.Milliseconds()), r.Token)
		counter, _ := r.Made.SideKeys(r.Key)
		keys = append(keys, r.Key, counter)
		args = append(args, r.ID, ttl, token)
	}
	reply, err := n.voteAdmitted(ctx, keys, args, 2, -1)
	answers := make([]vote.Answer, len(batch))
	for i, r := range batch {
		switch {
		case err != nil || len(reply.Text) != len(batch):
			answers[i] = answer(reply, err)
		case reply.Text[i] == '1':
			answers[i].Verdict = vote.Granted
		case reply.Text[i] == '0':
			answers[i].Verdict = vote.NotOurs
		default:
			answers[i] = n.Extend(ctx, r) // which tells whose it is
		}
	}
	return answers
}
