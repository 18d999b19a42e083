package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// Enqueue takes a place in the wait queue, or says that the waiter is still there. Each waiter
// watches only the one before it, and the first watches the lease.
func (s *store) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	p, name := placeOf(s.prefix, r.Key), r.Ticket.Waiter
	position := vote.Position{Ticket: r.Ticket, Hears: true, Watched: true}
	asked := false // for a place, or to give one up
	fail := func(err error) vote.Position {
		if position.Answer = answer(err); !asked {
			position.Answer = ensemble.NotAsked(position.Answer)
		}
		return position
	}
	renew := r.Ticket.Number == 0
	for range maxConflicts {
		if err := s.await(ctx); err != nil {
			return fail(err)
		}
		c, err := s.contents(ctx, p)
		if err != nil {
			return fail(err)
		}
		own := c.index(name)
		switch {
		case own >= 0 && renew:
			asked, err = true, s.leave(ctx, p, name)
		case own < 0:
			asked, err = true, s.join(ctx, p, name, c)
		default:
			s.position(r.Key, p, c, own, &position)
			return position
		}
		if err != nil {
			return fail(err)
		}
		renew = false
	}
	return fail(errConflict)
}

// Watch implements hook.Store.
func (s *store) Watch(ctx, until context.Context, key string) (a vote.Answer, watched bool) {
	if err := s.await(ctx); err != nil {
		return answer(err), false
	}
	p := placeOf(s.prefix, key)
	c, err := s.contents(ctx, p)
	if err != nil {
		return answer(err), false
	}
	s.watchUntil(until, key, sight{p.held(), c.held, c.revision})
	if c.holder != "" {
		if left := s.observed.lease(p, c); left > 0 {
			return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: left}, true
		}
	}
	return vote.Answer{Verdict: vote.NotOurs}, true
}

// join takes a place at the end of the queue. If its answer is lost, the place is found by its
// name.
func (s *store) join(ctx context.Context, p place, name string, c contents) error {
	native, err := s.leased()
	if err != nil {
		return err
	}
	result, err := s.client.Txn(ctx).If(at(p.wait(name), 0), p.ungated(c), s.ours()).
		Then(clientv3.OpPut(p.wait(name), "", clientv3.WithLease(native))).Else(s.readRoot()).Commit()
	if err != nil {
		s.lost(native, err)
		return err
	}
	if !result.Succeeded {
		return s.checkRoot(result, 0)
	}
	return nil
}

// leave gives up a place, even one that was asked for and is not there yet.
func (s *store) leave(ctx context.Context, p place, name string) error {
	native, err := s.leased()
	if err != nil {
		return err
	}
	_, err = s.client.Txn(ctx).If(at(p.wait(name), 0)).
		Then(p.gate(native)).
		Else(clientv3.OpDelete(p.wait(name))).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) { // which servers say because of the gate
		if alone, failed := s.client.Delete(ctx, p.wait(name)); failed == nil && alone.Deleted > 0 {
			err = nil
		}
	}
	if err != nil {
		s.lost(native, err)
	}
	return err
}

// drop gives up, in the background, the place of another waiter that does not answer.
func (s *store) drop(w waiter) {
	s.run(func() {
		ctx, cancel := context.WithTimeout(s.life, stepTime)
		defer cancel()
		// If this fails, somebody tries again.
		s.client.Txn(ctx).If(at(w.key, w.number)).Then(clientv3.OpDelete(w.key)).Commit()
	})
}

// position sets where the waiter at index own is, and who holds the lock.
func (s *store) position(key string, p place, c contents, own int, position *vote.Position) {
	position.Ticket.Number = uint64(c.waiters[own].number)
	position.Ahead = own
	position.Answer = vote.Answer{Verdict: vote.Held, Holder: c.holder}
	switch {
	case own > 0:
		s.watch(key, sight{c.waiters[own-1].key, c.waiters[own-1].number, c.revision})
		if c.holder != "" {
			// The lease is timed already, for when those before this waiter have gone.
			if position.Left = s.observed.lease(p, c); position.Left > 0 {
				return
			}
			position.Holder = "" // the first in the queue may take it over
		}
		if position.Left = s.observed.head(c.waiters[0]); position.Left <= 0 {
			s.drop(c.waiters[0])
		}
	case c.holder != "":
		if position.Left = s.observed.lease(p, c); position.Left <= 0 {
			position.Holder, position.Left = "", 0 // it may be taken over
		}
		s.watch(key, sight{p.lease(), c.lease, c.revision})
	}
}

// Leave gives up the waiter's place. It waits for the answer or for ctx, and goes on in the
// background.
func (s *store) Leave(ctx context.Context, key, name string) {
	p := placeOf(s.prefix, key)
	left := make(chan struct{})
	started := s.run(func() {
		defer close(left)
		for again := true; again && s.await(s.life) == nil; again = s.rest() {
			if s.releases.Take(s.life) != nil {
				return
			}
			native := s.native()
			step, cancel := context.WithTimeout(s.life, stepTime)
			err := s.leave(step, p, name)
			cancel()
			s.releases.Free()
			if err == nil || s.refused(native, err) {
				return
			}
			if errors.Is(err, rpctypes.ErrNoSpace) { // until an operator has done something
				s.pause(time.Second)
			}
		}
	})
	if !started {
		return
	}
	select {
	case <-left:
	case <-ctx.Done():
	}
}

// HasWaiters reports whether anybody waits for the key.
func (s *store) HasWaiters(ctx context.Context, key string) (bool, error) {
	if err := s.await(ctx); err != nil {
		return false, err
	}
	r, err := s.client.Get(ctx, placeOf(s.prefix, key).waits(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, err
	}
	return r.Count > 0, nil
}
