package oneshot

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Query returns the id under which the lock name is held, as far as a quorum of nodes tells, and
// for how long, counted from the call, it stays held at least, unless it is extended or released: the
// time that the answers take is not taken off. A negative ttl means that it has no expiry. An empty id
// means that nobody holds the lock, which may have changed when the caller reads it; but with a ttl
// other than 0 it is that of a foreign program's key without a value, which is in the way of
// everybody.
//
// It changes nothing. It waits for as many nodes as it takes to tell, for a few NodeTimeouts at
// most, or for ctx. Errors are those of Take. Nodes that are not admitted are asked as well.
func (c *Client) Query(ctx context.Context, name string) (id string, ttl time.Duration, err error) {
	h, err := c.look(ctx, name, func(answers []vote.Answer) bool {
		_, _, decided := holding(answers)
		return decided
	})
	return h.Holder.ID, h.Left, err
}

// Holding says who holds a lock, and what each node says about it.
type Holding struct {
	// Holder is who has the lock on a quorum of nodes; its ID is empty when nobody has, and, with a Left
	// other than 0, when a foreign program's key without a value is in the way.
	Holder redlatch.Holder
	// Left is for how long, counted from the call, a quorum keeps it at least, unless it is extended or
	// released; negative means for ever.
	Left time.Duration
	// Nodes has one answer for each configured node, in their order: VoteHeld, or VoteNotOurs where
	// there is no key.
	Nodes []redlatch.NodeAnswer
}

// Inspect is Query for people: it also tells what the holder said of itself. When enough nodes have
// answered to tell who holds the lock, it waits for the others for NodeTimeout more. Nodes that it did
// not wait for are VoteUnknown.
func (c *Client) Inspect(ctx context.Context, name string) (Holding, error) {
	if ctx == nil {
		return Holding{}, errNilContext
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return c.look(ctx, name, func(answers []vote.Answer) bool {
		if _, _, decided := holding(answers); decided {
			time.AfterFunc(c.inside.NodeTimeout(), cancel)
		}
		return false
	})
}

func (c *Client) look(ctx context.Context, name string, enough func([]vote.Answer) bool) (Holding, error) {
	call, err := c.begin(ctx, "query", name, anyID)
	if err != nil {
		return Holding{}, err
	}
	defer call.leave()
	_, answers := c.inside.Put(ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Query(ctx, call.key) },
		Enough:   enough,
		Patience: patient, // it takes three round trips
	})
	id, left, decided := holding(answers)
	h := Holding{Left: left, Nodes: c.inside.Answers(answers).([]redlatch.NodeAnswer)}
	switch {
	case decided:
		h.Holder = c.inside.Holder(id).(redlatch.Holder)
	case ctx.Err() != nil:
		return h, call.ended(ctx)
	default:
		return h, c.inside.Failure("query", name, answers)
	}
	return h, nil
}

// holding returns who has the key on a quorum of nodes, "" if nobody has, and for how long the
// quorum stands. decided is false while the missing answers could still make a quorum.
func holding(answers []vote.Answer) (id string, left time.Duration, decided bool) {
	need := quorum.Majority(len(answers))
	missing, most := len(answers), 0
	lefts := make(map[string][]time.Duration)
	for _, a := range answers {
		switch a.Verdict {
		case vote.Held:
			l := a.Left
			if l < 0 {
				l = math.MaxInt64 // no expiry
			}
			lefts[a.Holder] = append(lefts[a.Holder], l)
			most = max(most, len(lefts[a.Holder]))
			missing--
		case vote.NotOurs:
			missing--
		}
	}
	for holder, l := range lefts {
		if len(l) < need {
			continue
		}
		slices.Sort(l)
		left = l[len(l)-need]
		if left == math.MaxInt64 {
			left = -1
		}
		return holder, left, true
	}
	return "", 0, most+missing < need
}
