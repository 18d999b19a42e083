package etcd

import (
	"context"
	"errors"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// maxConflicts is how often in one step other clients may come first.
const maxConflicts = 8

var errConflict = errors.New("others changed the lock at the same time")

// Acquire implements quorum.Voter. If an answer is lost, it finds out by the holder id whether the
// lock was granted, before it tries again.
func (s *store) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	w := &acquisition{store: s, request: r, place: placeOf(s.prefix, r.Key)}
	for try := 0; ; try++ {
		a, again := w.try(ctx)
		if a.Verdict == vote.Granted {
			s.observed.forget(w.place.lease())
			if r.From != "" {
				s.leases.Forget(r.From)
			}
			return a
		}
		if again && try < maxConflicts && ctx.Err() == nil {
			continue
		}
		if (w.doubtful || w.full != nil) && a.Verdict != vote.Unknown {
			s.remove(r.Key, r.ID)
		}
		return a
	}
}

// acquisition is one Acquire.
type acquisition struct {
	*store
	request vote.Acquire
	place   place
	// doubtful: a transaction was sent that got no answer. guessed: no further guess may be made
	// about the lock's keys. transferred: the last transaction replaces the lease of the request's
	// From.
	doubtful, guessed, transferred bool
	// full is the answer that there is no space, while it is not known whether the servers executed the
	// transaction: the one that uses up their quota they do.
	full error
	// found is what a transaction that was not executed has told of them, if one has.
	found *contents
}

// try makes one try. again: something has changed meanwhile, or an answer was lost.
func (w *acquisition) try(ctx context.Context) (a vote.Answer, again bool) {
	if err := w.await(ctx); err != nil {
		return w.failed(err)
	}
	if w.guess() {
		return w.commit(ctx, contents{})
	}
	c := w.found
	if w.found = nil; c == nil {
		read, err := w.read(ctx)
		if err != nil {
			return w.failed(err)
		}
		c = &read
	}
	w.guesses.found(w.place, c)
	return w.decide(ctx, *c)
}

// read reads the lock's keys, as a majority has them. If a transaction got no answer and has not
// had the lock, it is not executed any more: it might arrive when the lock is free again after this
// attempt, and nobody would release what it takes.
func (w *acquisition) read(ctx context.Context) (contents, error) {
	if !w.doubtful {
		return w.contents(ctx, w.place)
	}
	native, err := w.leased()
	if err != nil {
		return contents{}, err
	}
	reads := w.place.reads()
	r, err := w.client.Txn(ctx).If(w.place.isHolders(w.request.ID)).
		Then(reads...).Else(append(reads, w.place.gate(native))...).Commit()
	if err != nil {
		w.lost(native, err)
		return contents{}, err
	}
	return w.place.parse(r)
}

// guess reports whether to take the lock without a look at it: that mostly works for a lock that
// nobody else wants. It reports true at most once.
func (w *acquisition) guess() bool {
	r := w.request
	guess := !w.guessed && r.From == "" && r.Ticket.Waiter == "" && w.guesses.may(w.place)
	w.guessed = true
	return guess
}

// decide goes on from what the lock's keys contain.
func (w *acquisition) decide(ctx context.Context, c contents) (a vote.Answer, again bool) {
	// rule: answer-read-back
	if c.holder == w.request.ID {
		w.leases.Lengthen(w.request.ID, w.request.TTL)
		w.leases.Written(w.request.ID, c.lease)
		return w.granted(c.held, c.others(-1))
	}
	full := w.full
	w.full = nil
	if obstacle := w.obstacle(c); obstacle.Verdict == vote.Held {
		return obstacle, false
	}
	if full != nil {
		a, _ := w.failed(full)
		return a, false
	}
	return w.commit(ctx, c)
}

// failed returns the answer after the error err. If a transaction was not answered, nothing is
// known before somebody looks for it.
func (w *acquisition) failed(err error) (a vote.Answer, again bool) {
	a = answer(err)
	switch {
	case w.doubtful:
		a.Verdict = vote.Unknown
	case a.Verdict == vote.Unknown:
		a.Verdict = vote.Unavailable // nothing was asked for yet
	}
	return a, a.Verdict == vote.Unknown || a.Verdict == vote.Unavailable && !errors.Is(err, errStale)
}

// contents reads a lock's keys, as a majority has them.
func (s *store) contents(ctx context.Context, p place) (contents, error) {
	r, err := s.client.Txn(ctx).Then(p.reads()...).Commit()
	if err != nil {
		return contents{}, err
	}
	return p.parse(r)
}

func (w *acquisition) granted(revision int64, others bool) (vote.Answer, bool) {
	token, err := w.token(revision, uint64(w.request.More))
	if err != nil {
		w.doubtful = true // it must be removed
		return vote.Answer{Verdict: vote.Refused, Err: err}, false
	}
	return vote.Answer{Verdict: vote.Granted, Counter: token, Waiting: others, Transferred: w.transferred}, false
}

// obstacle returns who stands in the way: Held, if anybody does.
func (w *acquisition) obstacle(c contents) vote.Answer {
	r := w.request
	if c.holder == r.From && r.From != "" {
		return vote.Answer{}
	}
	own := c.index(r.Ticket.Waiter)
	first := c.first(own) || r.Barge
	if c.holder != "" {
		if left := w.observed.lease(w.place, c); left > 0 {
			return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: left, Waiting: c.others(own)}
		}
	}
	if !first {
		if left := w.observed.head(c.waiters[0]); left > 0 {
			return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: left, Waiting: true}
		}
		w.drop(c.waiters[0])
	}
	return vote.Answer{}
}

// commit takes the lock, unless anything has changed; it may take it from a holder whose lease has
// not changed. For a lock without keys, which may be a guess, it makes sure that nobody waits.
func (w *acquisition) commit(ctx context.Context, c contents) (a vote.Answer, again bool) {
	r := w.request
	native, ok := w.outlasting(clock.System.Now(), r.TTL)
	if !ok {
		return w.failed(errStale)
	}
	ttl := strconv.FormatInt(r.TTL.Milliseconds(), 10)
	writes := []clientv3.Op{
		clientv3.OpPut(w.place.held(), r.ID, clientv3.WithLease(native)),
		clientv3.OpPut(w.place.lease(), ttl, clientv3.WithLease(native)),
	}
	own := c.index(r.Ticket.Waiter)
	if own >= 0 {
		writes = append(writes, clientv3.OpDelete(c.waiters[own].key))
	}
	w.transferred = r.From != "" && c.holder == r.From
	w.leases.Lengthen(r.ID, r.TTL)
	conditions, guessed := append(w.place.unchanged(c), w.ours()), c.revision == 0
	otherwise := []clientv3.Op{w.readRoot()}
	if guessed {
		conditions, otherwise = append(conditions, w.place.nobodyWaits()), append(w.place.reads(), otherwise...)
	}
	// rule: takeover-by-version
	result, err := w.client.Txn(ctx).If(conditions...).Then(writes...).Else(otherwise...).Commit()
	switch {
	case err == nil && result.Succeeded:
		w.leases.Written(r.ID, result.Header.Revision)
		return w.granted(result.Header.Revision, c.others(own))
	case err == nil:
		w.leases.Forget(r.ID)
		if err := w.checkRoot(result, len(otherwise)-1); err != nil {
			return w.failed(err)
		}
		if guessed {
			found, err := w.place.parse(result)
			if err != nil {
				return w.failed(err)
			}
			w.found = &found
		}
		return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}, true
	}
	if a := answer(err); a.Verdict != vote.Unknown {
		w.lost(native, err)
		w.leases.Forget(r.ID)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			w.full = err
		}
		return w.failed(err)
	}
	w.doubtful = true
	return w.failed(err)
}
