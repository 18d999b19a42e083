package redlatch

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Permit is one of the permits of a name that is held (Client.Acquire).
type Permit struct {
	// Slot is which one it is, from 0 on.
	Slot   int
	Holder Holder
}

// ObservePermits yields the permits of name that are held, in the order of their slots, and all of them
// again when one is acquired or released or ends, until ctx is done. Each slot is by itself what Observe
// says of a lock: held where a quorum of nodes says so, and after a holder no earlier one is yielded. A slot
// of which too few nodes say the same, as while it is being acquired, stays as it was yielded before.
//
// Its errors are those of Observe. ZooKeeper and etcd have no permits: ErrInvalid ends the range.
//
// It changes nothing on the nodes, and has no goroutine. It reads the 256 slots that there can be on all
// nodes by one MGET each, when the node that keeps the permits' wait queue tells that one has changed, and
// else every 1.5 s; nodes behind package goredis and redlatchtest tell of no change. Each range begins
// anew. It is safe for concurrent use.
func (c *Client) ObservePermits(ctx context.Context, name string) iter.Seq2[[]Permit, error] {
	return func(yield func([]Permit, error) bool) {
		err := checkContext(ctx)
		var key string
		if err == nil {
			key, err = c.config.key(name)
		}
		if _, store := c.store(); err == nil && store {
			err = errNoPermits
		}
		if err != nil {
			yield(nil, err)
			return
		}
		queue := node.PermitsKey(key)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		changed, stop := c.observers.add(queue)
		defer stop()
		o := &permitsObservation{observation: observation{client: c, ctx: ctx, name: name, changed: changed, arbiter: c.waitqueue.Arbiter(queue)}}
		for slot := range o.keys {
			o.keys[slot] = node.SlotKey(queue, slot)
		}
		tell := func(err error) bool {
			if err != nil {
				return yield(nil, err)
			}
			return yield(o.held, nil)
		}
		for o.next(o.look, tell) {
		}
	}
}

// permitsObservation is one range over ObservePermits.
type permitsObservation struct {
	observation
	keys [script.MaxSlots]string
	// held is what is to be yielded.
	held []Permit
	// told are the holder ids that were yielded last, of each slot, while known.
	told   [script.MaxSlots]string
	known  bool
	latest [script.MaxSlots]latestHolder
}

// look asks all nodes. news: held or the error is to be yielded.
func (o *permitsObservation) look() (news bool, err error) {
	c := o.client
	o.held = nil
	var mu sync.Mutex // guards on, where a node may answer when no answer is waited for any more
	on := make([][]vote.Answer, len(c.nodes))
	heard := func() slotsOn {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(on)
	}
	_, answers := c.engine.Put(o.ctx, quorum.Poll{
		Ask: func(ctx context.Context, i int) vote.Answer {
			slots, a := c.nodes[i].ReadAll(ctx, o.keys[:], i == o.arbiter)
			mu.Lock()
			defer mu.Unlock()
			on[i] = slots
			return a
		},
		Enough:   func(answers []vote.Answer) bool { return answered(answers) && heard().decided() },
		Patience: 2,
	})
	if !answered(answers) {
		o.known = false
		return o.few(answers)
	}
	news = !o.known
	now, slots, apart := c.clock.Now(), heard(), false
	for slot := range o.keys {
		one := slots.at(slot)
		id, token, decided := holding(one)
		switch {
		case !decided || o.latest[slot].after(id, token, now, c.config.MaxTTL):
			apart = true
			id = o.told[slot]
		case id != o.told[slot]:
			news = true
		}
		if a := one[o.arbiter]; a.Verdict == vote.Held && a.Holder != id || a.Verdict == vote.NotOurs && id != "" {
			apart = true
		}
		if o.told[slot] = id; id != "" {
			o.held = append(o.held, Permit{slot, parseHolder(id)})
		}
	}
	if o.apart++; !apart {
		o.apart = 0
	}
	o.known, o.failing = true, false
	return news, nil
}

// answered reports whether a quorum of nodes was read.
func answered(answers []vote.Answer) bool {
	return quorum.Count(answers, vote.Granted) >= quorum.Majority(len(answers))
}

// slotsOn is what each node has answered of each slot, nil where it has not.
type slotsOn [][]vote.Answer

// at is what all have answered of one slot.
func (on slotsOn) at(slot int) []vote.Answer {
	one := make([]vote.Answer, len(on))
	for i, slots := range on {
		if slots != nil {
			one[i] = slots[slot]
		}
	}
	return one
}

// decided reports whether the answers that are missing can change nothing.
func (on slotsOn) decided() bool {
	for slot := range script.MaxSlots {
		if _, _, decided := holding(on.at(slot)); !decided {
			return false
		}
	}
	return true
}
