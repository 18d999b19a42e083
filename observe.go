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
// does not, as behind package goredis and in redlatchtest, it looks every 1.5 s and when the lock can
// have expired. What its own client does it knows at once. Each range begins anew. It is safe for
// concurrent use.
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
		o := &lockObservation{observation: observation{client: c, ctx: ctx, name: name, changed: changed, arbiter: c.waitqueue.Arbiter(key)}, key: key}
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
	// lookAgain is the time from one look to the next, where nothing is told; lookSoon, where the
	// arbiter and the quorum have not said the same, which doubles from one to the next.
	lookAgain = 1500 * time.Millisecond
	lookSoon  = 10 * time.Millisecond
)

// observation is one range over Observe or ObservePermits.
type observation struct {
	client  *Client
	ctx     context.Context // ends with the client, too
	name    string
	changed <-chan struct{}
	// arbiter is the node that is looked at.
	arbiter int
	// failing: that no quorum answers was yielded.
	failing bool
	// left is how long the key stays on the arbiter, 0 where that is not known; apart, how many
	// looks in a row have found that the arbiter and the quorum do not say the same.
	left  time.Duration
	apart int
}

// next looks once, yields what is new and rests. It reports false when the range is over.
func (o *observation) next(look func() (news bool, err error), yield func(error) bool) bool {
	c := o.client
	if err := c.enter(); err != nil {
		yield(err)
		return false
	}
	unusable := c.usable()
	news, err := true, unusable
	if err == nil {
		select {
		case <-o.changed: // what is asked from now on tells as much
		default:
		}
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

// few is what a look tells that no quorum has answered, once.
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
	// told is the holder id that was yielded last, "" for nobody, while known.
	told   string
	known  bool
	latest latestHolder
}

// look asks the arbiter, and the other nodes where that has something new. news: the holder or err is
// to be yielded.
func (o *lockObservation) look() (news bool, err error) {
	c := o.client
	o.holder = Holder{}
	step, cancel := context.WithTimeout(o.ctx, c.config.stepTimeout())
	a, _ := c.nodes[o.arbiter].Watch(step, o.ctx, o.key)
	cancel()
	now := c.clock.Now()
	o.left = a.Left
	if a.Verdict == vote.Held && o.known && a.Holder == o.told {
		if o.apart = 0; o.told == o.latest.id {
			o.latest.seen = now
		}
		return false, nil
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
		o.known = false
		return o.few(answers)
	case o.latest.after(id, token, now, c.config.MaxTTL):
		o.apart++ // until its key has expired
		return false, nil
	}
	news = !o.known || o.told != id
	o.told, o.known, o.failing = id, true, false
	if id != "" {
		o.holder = parseHolder(id)
	}
	return news, nil
}

// latestHolder is the latest holder of this library that an observer has seen.
type latestHolder struct {
	id string
	// token is its token, as far as that is known; seen is when it was seen last.
	token uint64
	seen  clock.Instant
}

// after reports whether it came after a holder that is seen now, and else takes that for the latest.
// Who has no counter any more was granted the lock more than MaxTTL ago, before another that was
// seen since.
func (l *latestHolder) after(id string, token uint64, now clock.Instant, maxTTL time.Duration) bool {
	if id == "" || isForeign(id) {
		return false
	}
	// rule: observer-not-back
	if id != l.id && token < l.token && now.Since(l.seen) <= maxTTL {
		return true
	}
	if id != l.id {
		l.id, l.token = id, 0
	}
	l.token, l.seen = max(token, l.token), now
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
