package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// Enqueue takes a place in the wait queue, or says that the waiter is still there. Each waiter
// watches only the one before it, and the first watches the lease.
func (s *store) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	p, w := placeOf(s.root, r.Key), r.Ticket.Waiter
	position := vote.Position{Ticket: r.Ticket, Hears: true, Watched: true}
	asked := false // for a place, or to give one up
	made := false  // the lock's node may have been
	fail := func(err error) vote.Position {
		if made {
			s.use(p)
		}
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
		c, err := s.contents(ctx, s.asks, p)
		if errors.Is(err, zk.ErrNoNode) {
			made, err = true, s.makePlace(ctx, p)
		}
		if err != nil {
			return fail(err)
		}
		own := c.index(w)
		switch {
		case own >= 0 && renew:
			asked, err = true, s.leave(ctx, s.asks, p, c.waiters[own], w)
			renew = false
		case own < 0:
			asked, err = true, s.join(ctx, p, w)
			renew = false
		default:
			var again bool
			if again, err = s.position(ctx, r.Key, p, c, own, &position); !again && err == nil {
				return position
			}
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fail(err)
		}
	}
	return fail(errConflict)
}

// Watch implements hook.Store. A change of a lock that nobody holds is not told.
func (s *store) Watch(ctx, _ context.Context, key string) (a vote.Answer, watched bool) {
	p := placeOf(s.root, key)
	for range maxConflicts {
		if err := s.await(ctx); err != nil {
			return answer(err), false
		}
		// What is read next is no older than now.
		if err := s.sync(ctx, s.asks, ""); err != nil {
			return answer(err), false
		}
		c, err := s.contents(ctx, s.asks, p)
		if errors.Is(err, zk.ErrNoNode) || err == nil && c.holder == "" {
			return vote.Answer{Verdict: vote.NotOurs}, false
		}
		left := time.Duration(0)
		if err == nil {
			left, _, err = s.lease(ctx, key, p, c, true)
		}
		switch {
		case errors.Is(err, zk.ErrNoNode): // another has it by now, or nobody
		case err != nil:
			return answer(err), false
		case left <= 0:
			return vote.Answer{Verdict: vote.NotOurs}, true
		default:
			return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: left}, true
		}
	}
	return answer(errConflict), false
}

// join takes a place at the end of the queue. If its answer is lost, the place is found by its
// name.
func (s *store) join(ctx context.Context, p place, name string) error {
	_, err := do(ctx, s.session, s.asks, name, func() (string, error) {
		return s.conn.Create(p.newWait(name), nil, zk.FlagEphemeralSequential, s.acl)
	})
	return err
}

// leave gives up a place.
func (s *store) leave(ctx context.Context, slots ensemble.Slots, p place, w waiter, id string) error {
	_, err := do(ctx, s.session, slots, id, func() (struct{}, error) { return struct{}{}, s.conn.Delete(p.wait(w), -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// drop gives up, in the background, the place of another waiter that does not answer.
func (s *store) drop(p place, w waiter) {
	s.run(func() { s.leave(s.life, s.releases, p, w, "") })
}

// position sets where the waiter at index own is, and who holds the lock. again: that has changed.
func (s *store) position(ctx context.Context, key string, p place, c contents, own int, position *vote.Position) (again bool, err error) {
	position.Ticket.Number = uint64(uint32(c.waiters[own].number)) + 1
	position.Ahead = own
	position.Answer = vote.Answer{Verdict: vote.Held, Holder: c.holder}
	if c.holder != "" {
		// The lease is timed already by those who are not first, for when they are.
		position.Left, _, err = s.lease(ctx, key, p, c, own == 0)
		if err != nil {
			return errors.Is(err, zk.ErrNoNode), err
		}
		if position.Left <= 0 {
			position.Holder, position.Left = "", 0 // the first may take it over
		}
	}
	if own == 0 {
		return false, nil
	}
	if position.Holder == "" {
		if position.Left = s.observed.head(key, c.waiters[0].node); position.Left <= 0 {
			s.drop(p, c.waiters[0])
		}
	}
	_, _, err = s.get(ctx, s.asks, p.wait(c.waiters[own-1]), true)
	return errors.Is(err, zk.ErrNoNode), err
}

// Leave gives up the waiter's place, and a second one where the answer to the first was lost. It
// waits for the answer or for ctx. It follows a request for the place that is under way, and goes on
// in the background.
func (s *store) Leave(ctx context.Context, key, name string) {
	p := placeOf(s.root, key)
	left := make(chan struct{})
	started := s.run(func() {
		defer close(left)
		for again := true; again && s.await(s.life) == nil; again = s.rest() {
			var c contents
			// The place may have been made through another server, which is ahead of this one.
			err := s.sync(s.life, s.releases, name)
			if err == nil {
				c, err = s.contents(s.life, s.releases, p)
			}
			if errors.Is(err, errForeign) || errors.Is(err, zk.ErrNoNode) { // which is not about the places, or says that there are none
				err = nil
			}
			for _, w := range c.waiters {
				if w.name == name && err == nil {
					err = s.leave(s.life, s.releases, p, w, name)
				}
			}
			if verdict := answer(err).Verdict; err == nil || verdict == vote.Refused {
				return
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
	c, err := s.contents(ctx, s.asks, placeOf(s.root, key))
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return len(c.waiters) > 0, err
}
