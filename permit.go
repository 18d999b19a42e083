package redlatch

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// permits is what a call for one of several permits has in addition. The key of such a call is that
// of the queue for all of them.
type permits struct {
	count uint16
	// slot is the slot that was acquired.
	slot int
}

// permit makes the call a call for a permit.
func (c *call) permit() error {
	count := *c.settings.permits
	switch _, store := c.client.store(); {
	case count < 1 || count > script.MaxSlots:
		return invalid("the number of permits, k, is %d: it must be from 1 to %d", count, script.MaxSlots)
	case c.settings.shared:
		return invalid("WithPermits and WithShared: a permit has one holder at a time: leave one of the two out")
	case c.settings.also != nil:
		return invalid("WithPermits and WithAlso: a permit is of one name: leave one of the two out")
	case store:
		return errNoPermits
	}
	c.permits, c.key = &permits{count: uint16(count)}, node.PermitsKey(c.key)
	return nil
}

// Slots implements waitqueue.Caller.
func (c *call) Slots() uint16 {
	if c.permits == nil {
		return 0
	}
	return c.permits.count
}

// slotTries is how many slots a try without a place in the queue goes for. A slot that is free on
// the node that chooses may be held on others, because its release is under way or the node has
// lost the key.
const slotTries = 3

// tryPermit makes an attempt for a permit. Nodes are asked in the order of the queue's key: the
// first one that can says which slot, so that votes do not split over that, and then the others are
// asked for the key of this slot.
func (c *call) tryPermit(request vote.Acquire) (*quorum.Lease, []vote.Answer) {
	order, ticket := c.client.waitqueue.Order(c.key), request.Ticket
	if ticket.Waiter != "" { // its queue is the one that counts
		order = append([]int{ticket.Node}, slices.DeleteFunc(order, func(i int) bool { return i == ticket.Node })...)
	}
	request.Slots, request.More = c.permits.count, 0
	request.First = uint16(c.client.draw(time.Duration(request.Slots)))
	votes := make([]vote.Answer, len(c.client.nodes))
	for tries, at := 1, 0; at < len(order) && c.ctx.Err() == nil; {
		i := order[at]
		if request.Ticket = ticket; i != ticket.Node {
			request.Ticket = vote.Ticket{}
		}
		lease, answers, chosen := c.tryAt(i, request)
		switch {
		case chosen && (lease != nil || ticket.Waiter != "" || tries == slotTries):
			return lease, answers
		case chosen:
			tries++
			votes, request.First = answers, uint16(c.permits.slot+1)%request.Slots
		case answers[i].Verdict == vote.Held && tries > 1:
			// The try before this one is being undone, and may be what is in the way. What kept that
			// one from a permit is the reason.
			return nil, votes
		default:
			if votes[i] = answers[i]; votes[i].Verdict == vote.Held {
				return nil, votes
			}
			at++
		}
		request.ID = c.client.newHolderID(c.client.clock.Wall(), c.settings.label)
	}
	return nil, votes
}

// tryAt asks node i to choose a slot. chosen reports whether it has; the answers are then those to
// the attempt for that slot.
func (c *call) tryAt(i int, request vote.Acquire) (lease *quorum.Lease, answers []vote.Answer, chosen bool) {
	start := c.client.engine.Now() // the validity counts from here
	step, cancel := context.WithTimeout(c.ctx, c.client.config.stepTimeout())
	given := c.client.nodes[i].Choose(step, request)
	cancel()
	if given.Verdict != vote.Granted {
		answers = make([]vote.Answer, len(c.client.nodes))
		answers[i] = given
		return nil, answers, false
	}
	// rule: votes-for-one-slot
	request.Key, request.Proposed = node.SlotKey(c.key, int(given.Slot)), given.Counter
	lease, answers = c.client.engine.Accept(c.ctx, request, start, i, given)
	c.permits.slot = int(given.Slot)
	return lease, answers, true
}

// Slot returns which of the permits was acquired, from 0 on, or -1 for a lock.
func (l *Lock) Slot() int {
	if l.call.permits == nil {
		return -1
	}
	return l.call.permits.slot
}
