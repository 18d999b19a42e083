package redlatch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

const (
	// maxRenewals is how many locks one command renews: what is behind it at the server waits for no
	// more. So many rounds are under way at once; the rest waits.
	maxRenewals      = 128
	maxRenewalRounds = 8
	// renewalJoin is how long the first waits for others that are due.
	renewalJoin = time.Millisecond
)

// renewals renews leases that are due at about the same time together: of many that are held, a
// renewal by itself costs more than the lock did.
type renewals struct {
	client *Client
	// hourly is how many renewals an hour the locks that are held need, and took how long a round
	// takes, a mean of the last ones.
	hourly, took atomic.Int64

	mu  sync.Mutex // guards what follows; nothing is called while it is held
	due []renewal
	// joining: a round is about to begin. rounds is how many are under way or about to begin.
	joining bool
	rounds  int
}

// renewal is a lease that is due, and what is called when it was renewed, or was not.
type renewal struct {
	quorum.Renewal
	ended func(quorum.Extension, []vote.Answer)
}

// newRenewals returns nil where a node may be more than one server, or each step waits for replicas.
func newRenewals(c *Client) renewer {
	for _, n := range c.nodes {
		if _, ok := n.(quorum.BatchVoter); !ok {
			return nil
		}
	}
	if c.config.acknowledged() {
		return nil
	}
	return &renewals{client: c}
}

// renew implements renewer.
func (r *renewals) renew(l *quorum.Lease, ttl time.Duration, ended func(quorum.Extension, []vote.Answer)) {
	r.mu.Lock()
	r.due = append(r.due, renewal{quorum.Renewal{Lease: l, TTL: ttl}, ended})
	start := r.another()
	r.mu.Unlock()
	if start {
		r.client.clock.AfterFunc(renewalJoin, r.run)
	}
}

// hold implements renewer.
func (r *renewals) hold(ttl time.Duration) { r.hourly.Add(int64(3 * time.Hour / ttl)) }

// drop implements renewer.
func (r *renewals) drop(ttl time.Duration) { r.hourly.Add(-int64(3 * time.Hour / ttl)) }

// overloaded implements renewer. As many renewals are under way, on average, as begin while one is
// (Little's law); where that comes near to what may be, those that are due begin to wait. It is said
// when a lock is asked for, as what is acquired now is due only when a third of its TTL is over.
func (r *renewals) overloaded() bool {
	return float64(r.hourly.Load())*time.Duration(r.took.Load()).Hours() > 0.8*maxRenewals*maxRenewalRounds
}

// another reports whether the caller is to have a round begin for what is due: it does not wait for a
// round before, which may be late. The caller holds r.mu.
func (r *renewals) another() bool {
	if len(r.due) == 0 || r.joining || r.rounds == maxRenewalRounds {
		return false
	}
	r.joining = true
	r.rounds++
	return true
}

// run makes rounds until nothing is due.
func (r *renewals) run() {
	r.mu.Lock()
	r.joining = false
	r.mu.Unlock()
	for due := r.take(); len(due) > 0; due = r.take() {
		r.round(due)
	}
}

// take returns what is renewed next. With nothing, the caller's rounds are over.
func (r *renewals) take() []renewal {
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
		r.client.calls.Go(r.run) // which those that are due keep from being over
	}
	return due
}

// round renews what is due. It has longer than a step: where the machine has much to do, what is late is
// better than what is given up, as long as there is time to try again.
func (r *renewals) round(due []renewal) {
	batch, limit := make([]quorum.Renewal, len(due)), due[0].TTL
	for i := range due {
		batch[i] = due[i].Renewal
		limit = min(limit, batch[i].TTL)
	}
	start := r.client.clock.Mono()
	r.client.engine.ExtendBatch(batch, limit/12)
	took := r.took.Load()
	r.took.Store(took + (int64(r.client.clock.Mono().Sub(start))-took)/8)
	for i := range due {
		due[i].ended(batch[i].End, batch[i].Answers)
	}
}
