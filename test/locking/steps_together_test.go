package locking

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/vote"
)

func init() {
	together["in batches"] = func(n *node.Node) steps { return inBatches{node.Batch(n, -1)} }
}

// inBatches are steps of which each goes to the server together with others.
type inBatches struct{ *node.Batched }

// Extend extends beside a lock that is not there.
func (b inBatches) Extend(ctx context.Context, r vote.Extend) vote.Answer {
	other := vote.Extend{Key: r.Key + "/none", ID: "mine", TTL: time.Minute}
	return b.ExtendBatch(ctx, []vote.Extend{other, r})[1]
}
