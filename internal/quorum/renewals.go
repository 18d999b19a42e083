package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

const (
	// maxRenewals is how many leases one command extends: a step behind it at the server waits for
	// no more of them.
	maxRenewals = 128
	// maxRenewalRounds bounds the rounds that are under way at once. What is due beyond them waits.
	maxRenewalRounds = 8
	// renewalJoin is how long the first lease that is due waits for others.
	renewalJoin = time.Millisecond
)

// Renewals is a Renewer that extends leases which are due at about the same time by one command: where
// many are held, a renewal by itself costs more than the lock did.
type Renewals struct {
	engine *Engine
	// life ends when the leases are about to be released all at once: no round is waited for then.
	life context.Context
	// hourly is how many renewals an hour the leases need, and took how long a round takes, in
	// nanoseconds, a mean of the last ones.
	hourly, took atomic.Int64

	mu  sync.Mutex // guards what follows; nothing is called while it is held
	due []renewal
	// joining: a round is about to begin. rounds is how many are under way or about to begin.
	joining bool
	rounds  int
}

// NewRenewals returns the renewals of e's leases, or nil where each is renewed by itself: where a voter
// cannot extend several keys by one command, or each step waits for replicas (acknowledged).
func NewRenewals(life context.Context, e *Engine, acknowledged bool) Renewer {
	if acknowledged {
		return nil
	}
	for _, v := range e.voters {
		if _, ok := v.(BatchVoter); !ok {
			return nil
		}
	}
	return &Renewals{engine: e, life: life}
}

// Renew implements Renewer.
func (r *Renewals) Renew(l *Lease, ttl time.Duration, ended func(Extension, []vote.Answer)) {
	r.mu.Lock()
	r.due = append(r.due, renewal{lease: l, ttl: ttl, ended: ended})
	start := r.another()
	r.mu.Unlock()
	if start {
		r.engine.clock.AfterFunc(renewalJoin, r.run)
	}
}

// Add implements Renewer.
func (r *Renewals) Add(each time.Duration) { r.hourly.Add(int64(time.Hour / each)) }

// Remove implements Renewer.
func (r *Renewals) Remove(each time.Duration) { r.hourly.Add(-int64(time.Hour / each)) }

// Overloaded implements Renewer. As many renewals are under way, on average, as begin while one is
// (Little's law); where that comes near to maxRenewals in each of maxRenewalRounds, leases that are due
// begin to wait. It is asked when a lock is acquired, whose first renewal is due only later, so it
// answers early.
func (r *Renewals) Overloaded() bool {
	return float64(r.hourly.Load())*time.Duration(r.took.Load()).Hours() > 0.8*maxRenewals*maxRenewalRounds
}

// another reports whether the caller is to begin a round for what is due: it does not wait for a
// round before, which may be late. The caller holds r.mu.
func (r *Renewals) another() bool {
	if len(r.due) == 0 || r.joining || r.rounds == maxRenewalRounds {
		return false
	}
	r.joining = true
	r.rounds++
	return true
}

// run makes rounds until nothing is due.
func (r *Renewals) run() {
	r.mu.Lock()
	r.joining = false
	r.mu.Unlock()
	for due := r.take(); len(due) > 0; due = r.take() {
		r.round(due)
	}
}

// take returns what is renewed next. When it returns nothing, the caller's rounds are over.
func (r *Renewals) take() []renewal {
	r.mu.Lock()
	n := min(len(r.due), maxRenewals)
	if n == 0 {
		r.rounds--
		r.due = nil
	}
	due := r.due[:n:n]
	r.due = r.due[n:]
	start := r.another()
	r.mu.Unlock()
	if start {
		r.engine.workers.run(r.run) // the engine is not closed before what is due has ended
	}
	return due
}

// round renews what is due. Its limit is a twelfth of the shortest TTL, which is more than a step's
// time: on a busy machine a late answer is better than none, as long as there is time for another try.
func (r *Renewals) round(due []renewal) {
	limit := due[0].ttl
	for i := range due {
		limit = min(limit, due[i].ttl)
	}
	start := r.engine.clock.Mono()
	r.engine.extendBatch(r.life, due, limit/12)
	took := r.took.Load()
	r.took.Store(took + (int64(r.engine.clock.Mono().Sub(start))-took)/8)
}

// BatchVoter is a Voter that can extend several keys by one command, with an answer for each key.
type BatchVoter interface {
	Voter
	ExtendBatch(ctx context.Context, batch []vote.Extend) []vote.Answer
}

// renewal is the extension of one lease among others.
type renewal struct {
	lease *Lease
	ttl   time.Duration
	// ended, if set, is called when the extension is decided: others of the round may take long.
	ended func(Extension, []vote.Answer)
	// end and answers are what Lease.Extend returns.
	end     Extension
	answers []vote.Answer
}

// tell tells how extensions have ended.
func tell(ended []*renewal) {
	for _, r := range ended {
		if r.ended != nil {
			r.ended(r.end, r.answers)
		}
	}
}

// extendBatch is Lease.Extend for several leases. It returns when all of them are decided, after limit
// at the latest, or after a step's time if that is longer, and when life ends. A lease that is being
// extended already is Busy.
func (e *Engine) extendBatch(life context.Context, batch []renewal, limit time.Duration) {
	// rule: extension-from-send
	start := e.clock.Now()
	round := &roundContext{shared: true}
	round.begin(e, start.Mono, max(limit, e.timeout))
	defer context.AfterFunc(life, round.end)()
	open, left := make([]*extension, len(batch)), 0
	ended := make([]*renewal, 0, len(batch))
	for i := range batch {
		r := &batch[i]
		k := r.lease.keys
		before, gone := r.lease.turn()
		end, late := k.late(start)
		switch {
		case gone:
			r.end, ended = Over, append(ended, r)
		case before != nil:
			r.end, ended = Busy, append(ended, r)
		case late:
			r.end, ended = end, append(ended, r)
			k.endExtension()
		default:
			x := k.newExtension(round, start, r.ttl)
			open[i] = &x
			left++
		}
	}
	votes := make(chan batchAnswer, len(e.voters))
	for n := range e.voters {
		e.extendOn(n, round, open, votes)
	}
	for {
		for i, x := range open {
			if x != nil && x.decided() {
				r := &batch[i]
				r.end, r.answers, ended = x.end(), x.answers, append(ended, r)
				x.keys.endExtension()
				open[i] = nil
				left--
			}
		}
		if left == 0 {
			tell(ended)
			return
		}
		if now := ended; len(now) > 0 {
			e.workers.run(func() { tell(now) }) // no log may keep the others waiting
			ended = nil
		}
		v := <-votes
		for j, i := range v.asked {
			if open[i] != nil {
				open[i].answered(v.node, v.answers[j])
			}
		}
	}
}

// batchAnswer is a node's answers to those extensions of a batch that it was asked for.
type batchAnswer struct {
	node    int
	asked   []int
	answers []vote.Answer
}

// extendOn asks node n for those extensions of a batch whose keys have no other step under way there.
func (e *Engine) extendOn(n int, round *roundContext, open []*extension, votes chan<- batchAnswer) {
	asked, keys, requests := make([]int, 0, len(open)), make([]*keys, 0, len(open)), make([]vote.Extend, 0, len(open))
	for i, x := range open {
		if x != nil && x.enter(n) {
			asked, keys, requests = append(asked, i), append(keys, x.keys), append(requests, x.request)
		}
	}
	if len(asked) == 0 {
		return
	}
	e.workers.run(func() {
		answers := e.voters[n].(BatchVoter).ExtendBatch(round, requests)
		for j, k := range keys {
			k.extended(n, answers[j])
		}
		votes <- batchAnswer{n, asked, answers}
		for j, k := range keys {
			if answers[j].Verdict == vote.NotOurs {
				e.workers.run(func() { k.repairStep(round, n, requests[j]) })
			}
		}
	})
}
