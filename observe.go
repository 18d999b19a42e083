package redlatch

import (
	"context"
	"iter"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Observe yields who has the lock name, and again when that changes, until ctx is done: the zero
// Holder when nobody has. What it yields was said by a quorum of nodes after it was asked for, and
// may be over when it is read. What must not be done by two, the resource refuses by its token.
//
// After a holder no earlier one is yielded, also where a server has come back with old data. Those
// who came and went between two looks are not yielded, and those who hold in turn by one attempt
// (package documentation, "Waiting") are one. A node that restarted without its keys, and does not
// vote yet, answers that it has none.
//
// When no quorum answers, an error is yielded once, ErrNoQuorum or ErrRefused in a *QuorumError,
// and the next holder when one does again, also if it is the same. ErrInvalid and ErrClosed end the
// range. When ctx is done nothing more is yielded.
//
// It changes nothing on the nodes, and has no goroutine: all is done while the caller waits for the
// next, and one who is slow sees the latest. It looks at the node that keeps the lock's wait queue,
// and asks the others when that has something new, has nothing, or does not answer. Where the
// server tells of a key that has changed, it waits for that, and a renewal costs one GET; where it
// does not, as a Cluster, behind package goredis and in redlatchtest, it looks every 1.5 s and when
// the lock can have expired. What its own client does it knows at once. Each range begins anew. It
// is safe for concurrent use.
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
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		changed, stop := c.observers.add(key)
		defer stop()
		o := &observation{client: c, ctx: ctx, name: name, key: key, changed: changed, arbiter: c.waitqueue.Arbiter(key)}
		for o.next(yield) {
		}
	}
}

const (
	// lookAgain is the time from one look to the next, where nothing is told; lookSoon, where the
	// arbiter and the quorum have not said the same, which doubles from one to the next.
	lookAgain = 1500 * time.Millisecond
	lookSoon  = 10 * time.Millisecond
)

// observation is one range over Observe.
type observation struct {
	client    *Client
	ctx       context.Context // ends with the client, too
	name, key string
	changed   <-chan struct{}
	// arbiter is the node that is looked at.
	arbiter int
	// told is the holder id that was yielded last, "" for nobody, while known.
	told  string
	known bool
	// failing: that no quorum answers was yielded.
	failing bool
	// latest is the holder id of the latest leader of this library, token its token, as far as that is
	// known, and seen when it was seen last.
	latest string
	token  uint64
	seen   clock.Instant
	// left is how long the key stays on the arbiter, 0 where that is not known; apart, how many
	// looks in a row have found that the arbiter and the quorum do not say the same.
	left  time.Duration
	apart int
}

// next looks once, yields what is new and rests. It reports false when the range is over.
func (o *observation) next(yield func(Holder, error) bool) bool {
	c := o.client
	if err := c.enter(); err != nil {
		yield(Holder{}, err)
		return false
	}
	unusable := c.usable()
	holder, news, err := Holder{}, true, unusable
	if err == nil {
		holder, news, err = o.look()
	}
	c.calls.Done() // before yield, as Close may be called there
	switch {
	case o.ctx.Err() != nil:
	case news && !yield(holder, err), unusable != nil:
		return false
	}
	return o.rest()
}

// look asks the arbiter, and the other nodes where that has something new. news: holder or err is
// to be yielded.
func (o *observation) look() (holder Holder, news bool, err error) {
	select {
	case <-o.changed: // what is asked from now on tells as much
	default:
	}
	c := o.client
	step, cancel := context.WithTimeout(o.ctx, c.config.stepTimeout())
	a, _ := c.nodes[o.arbiter].Watch(step, o.ctx, o.key)
	cancel()
	now := c.clock.Now()
	o.left = a.Left
	if a.Verdict == vote.Held && o.known && a.Holder == o.told {
		if o.apart = 0; o.told == o.latest {
			o.seen = now
		}
		return Holder{}, false, nil
	}
	_, answers := c.engine.Put(o.ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Read(ctx, o.key) },
		Enough:   func(answers []vote.Answer) bool { _, _, decided := holding(answers); return decided },
		Patience: 2,
	})
	id, token, decided := holding(answers)
	if o.apart++; a.Holder == id && (a.Verdict == vote.Held || a.Verdict == vote.NotOurs) {
		o.apart = 0
	}
	switch {
	case !decided:
		news, o.failing, o.known = !o.failing, true, false
		return Holder{}, news, newQuorumError("observe", o.name, c.answers(answers))
	case o.outdated(id, token, now):
		return Holder{}, false, nil
	}
	news = !o.known || o.told != id
	o.told, o.known, o.failing = id, true, false
	if id != "" {
		holder = parseHolder(id)
	}
	return holder, news, nil
}

// outdated reports whether a holder is an earlier one than was seen before, and notes a later one.
// Who has no counter any more was granted the lock more than MaxTTL ago, before another that was
// seen since.
func (o *observation) outdated(id string, token uint64, now clock.Instant) bool {
	if id == "" || isForeign(id) {
		return false
	}
	// rule: observer-not-back
	if id != o.latest && token < o.token && now.Since(o.seen) <= o.client.config.MaxTTL {
		o.apart++ // until its key has expired
		return true
	}
	if id != o.latest {
		o.latest, o.token = id, 0
	}
	o.token, o.seen = max(token, o.token), now
	return false
}

// rest returns when it is time for the next look. It reports false when the range is over, but for
// what is to be said of a client that was closed.
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
	return o.ctx.Err() == nil || o.client.life.Err() != nil
}

// holding returns who has the key on a quorum of nodes, "" if nobody, and the smallest counter that
// these have. It is not decided while the answers that are missing could make one.
func holding(answers []vote.Answer) (id string, token uint64, decided bool) {
	need := quorum.Majority(len(answers))
	missing, most := len(answers), 0
	on := make(map[string]int)
	for _, a := range answers {
		switch a.Verdict {
		case vote.Held:
			on[a.Holder]++
			if missing--; on[a.Holder] > most {
				most, id = on[a.Holder], a.Holder
			}
		case vote.NotOurs:
			missing--
		}
	}
	if most < need {
		return "", 0, most+missing < need
	}
	for _, a := range answers {
		if a.Verdict == vote.Held && a.Holder == id && a.Token > 0 && (token == 0 || a.Token < token) {
			token = a.Token
		}
	}
	return id, token, true
}
