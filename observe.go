package redlatch

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Observe yields who has the lock name, and again when that changes, until ctx is done. It yields
// the zero Holder when nobody has the lock, also where a foreign program's key without a value is in
// the way. A quorum of nodes has said what it yields, after they were asked for it, but it may be
// over when it is read. What two holders must not do, the resource has to refuse by its token.
//
// After a holder, Observe yields no earlier one, even if a server has come back with old data. It
// does not yield holders that came and went between two looks. Holders that hold in turn by one
// attempt (package documentation, "Waiting") count as one. A node that restarted without its keys,
// and does not vote yet, answers that it has none.
//
// When no quorum answers, or when the nodes that answer go on saying different things while others
// are missing, Observe yields an error once, ErrNoQuorum or ErrRefused in a *QuorumError. It yields
// the holder when a quorum says the same again, even if that is the same one.
// ErrInvalid and ErrClosed end the range. When ctx is done, nothing more is yielded.
//
// Observe changes nothing on the nodes, and has no goroutine: it works while the caller waits for
// the next holder, and a slow caller sees the latest. It looks at the node that keeps the lock's
// wait queue, and asks the others when that node has something new, has nothing, or does not answer:
// where a holder's key is left on that node alone, it finds that the holder has gone when the key
// has. If the server tells of a key that has changed, Observe waits for that, and a renewal costs
// one command. If it does not, as behind package goredis and in redlatchtest, Observe looks every
// 1.5 s and when the lock can have expired. It learns at once what its own client does. Each range
// begins anew. Observe is safe for concurrent use.
func (c *Client) Observe(ctx context.Context, name string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		if err := checkContext(ctx); err != nil {
			yield(Holder{}, err)
			return
		}
		key, err := c.config.key(name)
		if err != nil {
			yield(Holder{}, err)
			return
		}
		either, end := c.whileOpen(ctx)
		defer end()
		changed, stop := c.observers.Add(key)
		defer stop()
		o := &lockObservation{observation: observation{client: c, caller: ctx, ctx: either, name: name, changed: changed, arbiter: c.waitqueue.Arbiter(key)}, key: key}
		tell := func(err error) bool {
			if err != nil {
				return yield(Holder{}, err)
			}
			return yield(o.holder, nil)
		}
		for o.next(o.look, tell) {
		}
	}
}

const (
	// lookAgain is the time from one look to the next if the server tells of no change. lookSoon is
	// the time after a look at which the arbiter and the quorum have not said the same; it doubles
	// from look to look. splitLooks is in how many looks in a row the answers of a quorum may fail to
	// tell who has the lock before that is an error.
	lookAgain  = 1500 * time.Millisecond
	lookSoon   = 10 * time.Millisecond
	splitLooks = 6
)

// observation is one range over Observe or ObservePermits.
type observation struct {
	client  *Client
	caller  context.Context
	ctx     context.Context // ends with caller, and with the client
	name    string
	changed <-chan struct{}
	// arbiter is the node that is looked at.
	arbiter int
	// failing: the error that no quorum answers was yielded.
	failing bool
	// left is how long the key stays on the arbiter, 0 if that is not known. apart is how many
	// looks in a row have found that the arbiter and the quorum do not say the same.
	left  time.Duration
	apart int
}

// next looks once, yields what is new and rests. It reports false when the range is over.
func (o *observation) next(look func() (news bool, err error), yield func(error) bool) bool {
	c := o.client
	if err := c.enter(); err != nil {
		if o.caller.Err() == nil {
			yield(fmt.Errorf("observe %q: %w", o.name, err))
		}
		return false
	}
	unusable := c.usable()
	news, err := true, unusable
	if err == nil {
		news, err = look()
	}
	c.calls.Done() // before yield, as Close may be called there
	switch {
	case o.ctx.Err() != nil:
	case news && !yield(err), unusable != nil:
		return false
	}
	return o.rest()
}

// few returns the error that no quorum has answered; it is news once.
func (o *observation) few(answers []vote.Answer) (news bool, err error) {
	news, o.failing = !o.failing, true
	return news, newQuorumError("observe", o.name, o.client.answers(answers))
}

// lockObservation is one range over Observe.
type lockObservation struct {
	observation
	key string
	// holder is what is to be yielded.
	holder Holder
	// told is the holder id that was yielded last, "" for nobody. It counts while known.
	told   string
	known  bool
	latest observe.Latest
	// split is how many looks in a row have found that a quorum answers, and that this does not tell
	// who has the lock.
	split int
}

// look asks the arbiter, and the other nodes if that has something new. news reports whether the
// holder or err is to be yielded.
func (o *lockObservation) look() (news bool, err error) {
	c := o.client
	o.holder = Holder{}
	step, cancel := context.WithTimeout(o.ctx, c.config.stepTimeout())
	a, _ := c.nodes[o.arbiter].Watch(step, o.ctx, o.key)
	cancel()
	now := c.clock.Now()
	o.left = a.Left
	if a.Verdict == vote.Held && o.known && a.Holder == o.told {
		if o.apart, o.split = 0, 0; o.latest.Is(o.told) {
			o.latest.SeenAt(now)
		}
		return false, nil
	}
	_, answers := c.engine.Put(o.ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Read(ctx, o.key) },
		Enough:   func(answers []vote.Answer) bool { _, _, decided := observe.Holding(answers); return decided },
		Patience: 2,
	})
	id, token, decided := observe.Holding(answers)
	if o.apart++; a.Holder == id && (a.Verdict == vote.Held || a.Verdict == vote.NotOurs) {
		o.apart = 0
	}
	if o.split++; decided || quorum.Count(answers, vote.Held, vote.NotOurs) < quorum.Majority(len(answers)) {
		o.split = 0
	}
	switch {
	case 0 < o.split && o.split <= splitLooks: // the lock may just be acquired or released
		o.apart = o.split
		return false, nil
	case !decided:
		o.known = false
		return o.few(answers)
	case earlier(&o.latest, id, token, now, c.config.MaxTTL):
		return false, nil
	}
	news = !o.known || o.told != id
	o.told, o.known, o.failing = id, true, false
	if id != "" {
		o.holder = parseHolder(id)
	}
	return news, nil
}

// earlier reports whether a holder that was seen came before the latest one. Nothing is known of
// the order of other libraries' holders.
func earlier(latest *observe.Latest, id string, token uint64, now clock.Instant, maxTTL time.Duration) bool {
	return id != "" && !isForeign(id) && latest.After(id, token, now, maxTTL)
}

// rest returns when it is time for the next look, or to say that the client was closed. It reports
// false when the caller's ctx is done.
func (o *observation) rest() bool {
	d := lookAgain - lookAgain/20 + o.client.draw(lookAgain/10)
	if o.left > 0 {
		d = min(d, o.left+time.Millisecond)
	}
	if o.apart > 0 {
		d = min(d, lookSoon<<min(o.apart-1, 8))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.changed:
	case <-timer.C:
	case <-o.ctx.Done():
	}
	return o.caller.Err() == nil
}

// Permit is a permit of a name that is held (Client.Acquire).
type Permit struct {
	// Slot is the number of the permit, from 0 on.
	Slot   int
	Holder Holder
}

// ObservePermits yields the permits of name that are held, in the order of their slots, and all of
// them again when one is acquired, is released or ends, until ctx is done. What Observe says of a
// lock goes for each slot by itself: it is held if a quorum of nodes says so, and after a holder no
// earlier one is yielded. A slot of which too few nodes say the same, as while it is being
// acquired, stays as it was yielded before.
//
// Its errors are those of Observe. ZooKeeper and etcd have no permits: ErrInvalid ends the range.
//
// ObservePermits changes nothing on the nodes, and has no goroutine. It reads all 256 possible
// slots on all nodes, by one command each, when the node that keeps the permits' wait queue tells
// that one has changed, and otherwise every 1.5 s. Nodes behind package goredis and in redlatchtest
// tell of no change. Each range begins anew. ObservePermits is safe for concurrent use.
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
		either, end := c.whileOpen(ctx)
		defer end()
		changed, stop := c.observers.Add(queue)
		defer stop()
		o := &permitsObservation{observation: observation{client: c, caller: ctx, ctx: either, name: name, changed: changed, arbiter: c.waitqueue.Arbiter(queue)}}
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
	// told has the holder id of each slot that was yielded last. It counts while known.
	told   [script.MaxSlots]string
	known  bool
	latest [script.MaxSlots]observe.Latest
}

// look asks all nodes. news reports whether held or the error is to be yielded.
func (o *permitsObservation) look() (news bool, err error) {
	c := o.client
	o.held = nil
	var mu sync.Mutex // guards on: a node may answer when nobody waits for it any more
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
		// The arbiter is waited for: what it has may be news that the others do not have yet.
		Enough: func(answers []vote.Answer) bool {
			a := answers[o.arbiter]
			return (a.Verdict != vote.Unknown || a.Err != nil) && answered(answers) && heard().decided()
		},
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
		id, token, decided := observe.Holding(one)
		switch {
		case !decided || earlier(&o.latest[slot], id, token, now, c.config.MaxTTL):
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

// slotsOn is what each node has answered for each slot, nil for a node that has not answered.
type slotsOn [][]vote.Answer

// at returns what all nodes have answered for one slot.
func (on slotsOn) at(slot int) []vote.Answer {
	one := make([]vote.Answer, len(on))
	for i, slots := range on {
		if slots != nil {
			one[i] = slots[slot]
		}
	}
	return one
}

// decided reports whether the missing answers can change nothing.
func (on slotsOn) decided() bool {
	for slot := range script.MaxSlots {
		if _, _, decided := observe.Holding(on.at(slot)); !decided {
			return false
		}
	}
	return true
}
