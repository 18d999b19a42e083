package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// maxConflicts is how often in one step other clients may come first.
const maxConflicts = 8

// Acquire implements quorum.Voter. If the connection is lost, it finds out by the holder id whether
// the lock was granted, before it tries again.
func (s *store) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	w := &acquisition{store: s, request: r, place: placeOf(s.root, r.Key)}
	for try := 0; ; try++ {
		a, again := w.try(ctx)
		if a.Verdict == vote.Granted {
			s.observed.taken(r.Key)
			if r.From != "" {
				s.leases.Forget(r.From)
			}
			return a
		}
		if again && try < maxConflicts && ctx.Err() == nil {
			continue
		}
		if w.doubtful && a.Verdict != vote.Unknown {
			s.remove(r.Key, r.ID)
		}
		if w.made {
			s.use(w.place)
		}
		return a
	}
}

// acquisition is one Acquire.
type acquisition struct {
	*store
	request vote.Acquire
	place   place
	// doubtful: a transaction was sent that got no answer. sure: what this server knows is no older
	// than the step. transferred: the last transaction replaces the lease of the request's From. made: the
	// lock's node may have been made.
	doubtful, sure, transferred, made bool
}

// try makes one try. again: something has changed meanwhile, or the connection was lost.
func (w *acquisition) try(ctx context.Context) (a vote.Answer, again bool) {
	if err := w.await(ctx); err != nil {
		return w.failed(err)
	}
	// This server may not have heard of what was sent over another connection.
	if w.doubtful && !w.sure {
		if err := w.sync(ctx); err != nil {
			return w.failed(err)
		}
	}
	c, err := w.contents(ctx, w.asks, w.place)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return w.makePlace(ctx)
	case err != nil:
		return w.failed(err)
	case c.holder == w.request.ID:
		return w.readBack(ctx)
	}
	obstacle, replaced, err := w.obstacle(ctx, c)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}, true
	case err != nil:
		return w.failed(err)
	case obstacle.Verdict == vote.Held && !w.sure:
		if err := w.sync(ctx); err != nil {
			return w.failed(err)
		}
		return obstacle, true
	case obstacle.Verdict == vote.Held:
		return obstacle, false
	}
	return w.commit(ctx, c, replaced)
}

var errConflict = errors.New("others changed the lock at the same time")

// failed returns the answer after the error err. If a transaction was not answered, nothing is
// known before somebody looks for it.
func (w *acquisition) failed(err error) (a vote.Answer, again bool) {
	if a = notAsked(err); w.doubtful {
		a.Verdict = vote.Unknown
	}
	lost := a.Verdict == vote.Unknown || a.Verdict == vote.Unavailable
	if lost {
		w.sure = false
	}
	return a, lost && !errors.Is(err, errAbandoned) && !errors.Is(err, errStale)
}

// sync makes sure that what is read next is no older than now.
func (w *acquisition) sync(ctx context.Context) error {
	err := w.store.sync(ctx, w.asks, w.request.ID)
	w.sure = err == nil
	return err
}

// sync makes sure that what is read next is no older than now, and, if id is not "", than the request
// under way for it.
func (s *store) sync(ctx context.Context, slots ensemble.Slots, id string) error {
	_, err := do(ctx, s.session, slots, id, func() (string, error) { return s.conn.Sync(s.root) })
	return err
}

func (s *store) contents(ctx context.Context, slots ensemble.Slots, p place) (contents, error) {
	return do(ctx, s.session, slots, "", func() (contents, error) {
		children, stat, err := s.conn.Children(string(p))
		c := parseContents(children)
		if err != nil {
			return c, err
		}
		if c.moves = stat.Version; c.foreign {
			err = fmt.Errorf("%s has %s or a lease, and not one of each, %w: delete both when nobody holds the lock", p, heldName, errForeign)
		}
		return c, err
	})
}

// makePlace makes the lock's node, which the servers delete after it has been empty for a while.
func (w *acquisition) makePlace(ctx context.Context) (a vote.Answer, again bool) {
	w.made = true
	if err := w.store.makePlace(ctx, w.place); err != nil {
		return w.failed(err)
	}
	return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}, true
}

func (s *store) makePlace(ctx context.Context, p place) error {
	_, err := do(ctx, s.session, s.asks, string(p), func() (string, error) {
		return s.conn.CreateContainer(string(p), nil, zk.FlagContainer, s.acl)
	})
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return s.otherRoot("not there any more")
	}
	return err
}

// use makes a node under a lock's and deletes it, in the background: servers never delete a lock's node that has been empty
// since it was made.
func (s *store) use(p place) {
	child := string(p) + "/made"
	s.run(func() {
		for again := true; again && s.await(s.life) == nil; again = s.rest() {
			_, err := do(s.life, s.session, s.releases, string(p), func() ([]zk.MultiResponse, error) {
				return s.conn.Multi(&zk.CreateRequest{Path: child, Acl: s.acl}, &zk.DeleteRequest{Path: child, Version: -1})
			})
			if err == nil || errors.Is(err, zk.ErrNoNode) || refused(err) || err.Error() == errQuota {
				return
			}
		}
	})
}

// otherRoot returns the error of a root that was deleted, or is that of another ensemble: servers do not say of
// which ensemble they are.
func (s *store) otherRoot(how string) error {
	return fmt.Errorf("%s is %s, %w: open the client anew if somebody has deleted it, or else name the servers of one ensemble in Ensemble.Servers", s.root, how, errForeign)
}

// rule: answer-read-back

// readBack returns the answer for a lock that was granted already.
func (w *acquisition) readBack(ctx context.Context) (a vote.Answer, again bool) {
	stat, err := do(ctx, w.session, w.asks, "", func() (*zk.Stat, error) {
		_, stat, err := w.conn.Get(w.place.lease(w.request.ID))
		return stat, err
	})
	if err != nil {
		w.doubtful = true
		return w.failed(err)
	}
	w.leases.Lengthen(w.request.ID, w.request.TTL)
	w.leases.Written(w.request.ID, grantVersion)
	return w.granted(stat.Czxid, false)
}

// grantVersion is the version of a lease that was made and then written once.
const grantVersion = 1

func (w *acquisition) granted(zxid int64, others bool) (vote.Answer, bool) {
	token, err := w.token(zxid, uint64(w.request.More))
	if err != nil {
		w.doubtful = true // it must be removed
		return vote.Answer{Verdict: vote.Refused, Err: err}, false
	}
	return vote.Answer{Verdict: vote.Granted, Counter: token, Waiting: others, Transferred: w.transferred}, false
}

// obstacle returns who stands in the way. If nobody does, replaced has the requests that end the
// lease that this one replaces.
func (w *acquisition) obstacle(ctx context.Context, c contents) (a vote.Answer, replaced []any, err error) {
	r := w.request
	if c.holder == r.From && r.From != "" {
		return vote.Answer{}, append(w.place.unmoved(c), &zk.DeleteRequest{Path: w.place.lease(r.From), Version: -1}), nil
	}
	own := c.index(r.Ticket.Waiter)
	others := len(c.waiters) > 1 || len(c.waiters) == 1 && own < 0
	first := c.first(own) || r.Barge
	if c.holder != "" {
		if !w.sure {
			return vote.Answer{Verdict: vote.Held, Holder: c.holder}, nil, nil
		}
		left, version, err := w.lease(ctx, r.Key, w.place, c, false)
		if err != nil {
			return vote.Answer{}, nil, err
		}
		if left > 0 {
			return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: left, Waiting: others}, nil, nil
		}
		// rule: takeover-by-version
		replaced = append(w.place.unmoved(c),
			&zk.DeleteRequest{Path: w.place.lease(c.holder), Version: version},
			&zk.DeleteRequest{Path: w.place.held(), Version: -1},
		)
	}
	if !first {
		if left := w.observed.head(r.Key, c.waiters[0].node); left > 0 {
			return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: left, Waiting: true}, nil, nil
		}
		w.drop(w.place, c.waiters[0])
	}
	return vote.Answer{}, replaced, nil
}

// unmoved returns the condition that the lease is in the session that it was in.
func (p place) unmoved(c contents) []any {
	return []any{&zk.CheckVersionRequest{Path: string(p), Version: c.moves}}
}

// first reports whether the waiter at index own, or -1 for none, need not wait for others in the
// queue.
func (c contents) first(own int) bool { return own == 0 || len(c.waiters) == 0 }

// lease looks at another holder's lease, and returns how much longer it may run: not any more if it
// has been at that version for its TTL. watch: changes of it are told.
func (s *store) lease(ctx context.Context, key string, p place, c contents, watch bool) (left time.Duration, version int32, err error) {
	data, stat, err := s.get(ctx, s.asks, p.lease(c.holder), watch)
	if err != nil {
		return 0, 0, err
	}
	ttl, err := p.ttl(c.holder, data)
	if err != nil {
		return 0, 0, err
	}
	return s.observed.lease(key, leaseSeen{holder: c.holder, version: stat.Version, moves: c.moves, ttl: ttl}), stat.Version, nil
}

// ttl reads the TTL from the data of a lease.
func (p place) ttl(holder string, data []byte) (time.Duration, error) {
	ms, err := strconv.ParseInt(string(data), 10, 32)
	if err != nil || ms <= 0 {
		return 0, fmt.Errorf("%s has no TTL, %w: delete it when nobody holds the lock", p.lease(holder), errForeign)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// get reads a node. With watch, changes of the node are told.
func (s *store) get(ctx context.Context, slots ensemble.Slots, path string, watch bool) ([]byte, *zk.Stat, error) {
	type node struct {
		data []byte
		stat *zk.Stat
	}
	watch = watch && s.watches.Begin(path)
	n, err := do(ctx, s.session, slots, "", func() (n node, err error) {
		if !watch {
			n.data, n.stat, err = s.conn.Get(path)
			return n, err
		}
		if n.data, n.stat, _, err = s.conn.GetW(path); err != nil {
			s.watches.Over(path)
		}
		return n, err
	})
	if watch && (errors.Is(err, ensemble.ErrBusy) || errors.Is(err, errNotConnected)) {
		s.watches.Over(path)
	}
	return n.data, n.stat, err
}

// ours returns the condition that the root is the one whose base this client has: tokens of another begin
// anew. There is none where the root has no mark.
func (s *store) ours() []any {
	if s.mark == "" {
		return nil
	}
	return []any{&zk.CheckVersionRequest{Path: s.mark, Version: -1}}
}

// commit takes the lock, unless anything has changed.
func (w *acquisition) commit(ctx context.Context, c contents, replaced []any) (a vote.Answer, again bool) {
	r := w.request
	if !w.outlasts(clock.System.Now(), r.TTL) {
		return w.failed(errStale)
	}
	lease, ttl := w.place.lease(r.ID), []byte(strconv.FormatInt(r.TTL.Milliseconds(), 10))
	ops := append(w.ours(), replaced...)
	w.transferred = r.From != "" && c.holder == r.From
	if w.transferred && c.moves > 0 { // it may be in another session
		ops = append(ops, &zk.DeleteRequest{Path: w.place.held(), Version: -1})
	}
	if !w.transferred || c.moves > 0 {
		ops = append(ops, &zk.CreateRequest{Path: w.place.held(), Acl: w.acl, Flags: zk.FlagEphemeral})
	}
	// The answer to the second request has the transaction's number.
	ops = append(ops, &zk.CreateRequest{Path: lease, Data: ttl, Acl: w.acl, Flags: zk.FlagEphemeral}, &zk.SetDataRequest{Path: lease, Data: ttl})
	stat := len(ops) - 1
	own := c.index(r.Ticket.Waiter)
	if own >= 0 {
		ops = append(ops, &zk.DeleteRequest{Path: w.place.wait(c.waiters[own]), Version: -1})
	}
	w.leases.Lengthen(r.ID, r.TTL)
	results, err := do(ctx, w.session, w.asks, r.ID, func() ([]zk.MultiResponse, error) { return w.conn.Multi(ops...) })
	switch {
	case err == nil && len(results) == len(ops) && results[stat].Stat != nil:
		w.leases.Written(r.ID, grantVersion)
		others := len(c.waiters) > 1 || len(c.waiters) == 1 && own < 0
		return w.granted(results[stat].Stat.Mzxid, others)
	case w.mark != "" && len(results) > 0 && errors.Is(results[0].Error, zk.ErrNoNode):
		w.leases.Forget(r.ID)
		return w.failed(w.otherRoot("not as it was"))
	case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		w.leases.Forget(r.ID)
		w.sure = true // this server has what the transaction met
		return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}, true
	case err == nil:
		err = zk.ErrUnknown
	}
	if a := answer(err); a.Verdict != vote.Unknown {
		w.leases.Forget(r.ID)
		return w.failed(err)
	}
	w.doubtful = true
	return w.failed(err)
}
