package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

const (
	// maxID bounds a holder id of a caller's own, in bytes.
	maxID = 512
	// anyID stands for the id in a call that has none.
	anyID = "*"
	// patient is how many steps' time a call may take that no lock's time runs
	// in.
	patient = 4
)

// Take makes one try to take the lock name under an id of the caller's own, for
// ttl and not a moment longer: nothing renews it. It is for those who take in
// one process and release in another; Lock is for all others.
//
// True: the lock is held until ttl less its drift, 1 % and 2 ms, has passed
// since the call. False: somebody has it, possibly under this very id: two
// callers with the same id exclude each other, as they do with the LockTake of
// StackExchange.Redis.
//
// The id is compared whole. It should be this take's own (crypto/rand.Text makes
// one): a release of an earlier take that was slow on its way can match a later
// one under the same id. What a try that failed is known to have set is taken
// back. Where no answer came that would tell, nothing is, as the record may be
// that of an earlier take under the id: after an error the caller may Release
// the id, or find out with ExtendTake whether the take was executed after all.
//
// It waits for a quorum, NodeTimeout at most (with Config.Replicas or Config.Fsync,
// twice ReplicaTimeout more), and where it has something to take back for that, four
// times as long at most; or for ctx. A record that the nodes set later than 2 s after
// the start, because this process was held up, is taken back, too. Errors:
// ErrInvalid, before anything is sent; ErrNoQuorum, ErrNotAdmitted or ErrRefused
// in a *QuorumError with each node's answer; ctx's cause; ErrClosed.
//
// There is no fencing token. Locks taken later have larger ones all the same.
func (c *Client) Take(ctx context.Context, name, id string, ttl time.Duration) (bool, error) {
	call, err := c.oneShot(ctx, "take", name, id)
	if err != nil {
		return false, err
	}
	defer c.calls.Done()
	if call.ttl, err = wholeTTL("ttl", ttl, c.config.MaxTTL); err != nil {
		return false, err
	}
	request := vote.Acquire{Key: call.key, ID: id, TTL: call.ttl, Proposed: uint64(c.clock.Wall().UnixMicro()), Reused: true}
	granted, err := call.vote(ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Take(ctx, request) },
		Undo:     func(ctx context.Context, i int) { c.nodes[i].Drop(ctx, call.release()) },
		TTL:      call.ttl,
		Longest:  vote.LongestAttempt,
		Patience: 1,
	})
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	return granted, err
}

// ExtendTake prolongs the lock name to ttl from now if it is held under id,
// whoever took it: Take, here or elsewhere, or a Lock that was detached. It never
// takes it anew.
//
// True: it is held until ttl less its drift has passed since the call. False: it
// is free or another's, and on nodes where it was not it may have been
// prolonged. A lock is not shortened, save with CommandsNative. Waiting and
// errors are those of Take; after an error it is held as long as it was, or
// longer. For a client whose settings are not the deployment's the *QuorumError wraps
// ErrInvalid as well, and nothing was prolonged.
func (c *Client) ExtendTake(ctx context.Context, name, id string, ttl time.Duration) (bool, error) {
	call, err := c.oneShot(ctx, "extend", name, id)
	if err != nil {
		return false, err
	}
	defer c.calls.Done()
	if call.ttl, err = wholeTTL("ttl", ttl, c.config.MaxTTL); err != nil {
		return false, err
	}
	return call.vote(ctx, quorum.Poll{
		Ask: func(ctx context.Context, i int) vote.Answer {
			return c.nodes[i].Prolong(ctx, vote.Extend{Key: call.key, ID: id, TTL: call.ttl})
		},
		TTL:      call.ttl,
		Patience: 1,
	})
}

// Release releases the lock name if it is held under id, whoever took it.
//
// True: a quorum of nodes had it under id, and has it no more. False: so many
// did not have it that no quorum had. An error leaves that open: a node whose
// answer was lost may have released it, so that a further Release says false
// though the first one did it.
//
// It waits for a quorum, a few NodeTimeouts at most, or for ctx, at whose end it
// goes on in the background. A node that does not answer keeps its record for
// the rest of the TTL. Errors are those of Take.
func (c *Client) Release(ctx context.Context, name, id string) (bool, error) {
	call, err := c.oneShot(ctx, "release", name, id)
	if err != nil {
		return false, err
	}
	defer c.calls.Done()
	return call.vote(ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Drop(ctx, call.release()) },
		Patience: patient,
	})
}

// Query returns the id under which the lock name is held, as far as a quorum of
// nodes tells, and for how long it is at least unless it is extended or released;
// that is negative when it has no expiry. An empty id means that nobody holds
// it, which may be over when the caller reads it.
//
// It changes nothing, and waits for as many nodes as it takes to tell, a few
// NodeTimeouts at most, or for ctx. Errors are those of Take; nodes that are not admitted are
// asked as well.
func (c *Client) Query(ctx context.Context, name string) (id string, ttl time.Duration, err error) {
	h, err := c.look(ctx, name, func(answers []vote.Answer) bool {
		_, _, decided := holding(answers)
		return decided
	})
	return h.Holder.ID, h.Left, err
}

// Holding is who holds a lock, and what each node says of it.
type Holding struct {
	// Holder is who has it on a quorum of nodes; its ID is empty when nobody
	// has.
	Holder Holder
	// Left is how long a quorum keeps it at least unless it is extended or
	// released; negative for ever.
	Left time.Duration
	// Nodes has one answer for each configured node, in their order: Held, or
	// NotOurs where there is nothing.
	Nodes []NodeAnswer
}

// Inspect is Query for people: it also tells what the holder said of itself. When enough
// nodes have answered to tell who holds the lock it waits for the others a quarter as long
// again, and NodeTimeout at most; those that it did not wait for are Unknown.
func (c *Client) Inspect(ctx context.Context, name string) (Holding, error) {
	if err := checkContext(ctx); err != nil {
		return Holding{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start, told := time.Now(), false
	return c.look(ctx, name, func(answers []vote.Answer) bool {
		if _, _, decided := holding(answers); decided && !told {
			told = true
			time.AfterFunc(c.config.aLittle(time.Since(start)), cancel)
		}
		return false
	})
}

func (c *Client) look(ctx context.Context, name string, enough func([]vote.Answer) bool) (Holding, error) {
	call, err := c.oneShot(ctx, "query", name, anyID)
	if err != nil {
		return Holding{}, err
	}
	defer c.calls.Done()
	_, answers := c.engine.Put(ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Query(ctx, call.key) },
		Enough:   enough,
		Patience: patient, // it takes three round trips
	})
	id, left, decided := holding(answers)
	h := Holding{Left: left, Nodes: c.answers(answers)}
	switch {
	case decided && id != "":
		h.Holder = parseHolder(id)
	case decided:
	case ctx.Err() != nil:
		return h, call.ended(ctx)
	default:
		return h, newQuorumError("query", name, h.Nodes)
	}
	return h, nil
}

// holding returns who has the record on a quorum of nodes, "" if nobody, and how
// long the quorum stands. It is not decided while the answers that are missing
// could make one.
func holding(answers []vote.Answer) (id string, left time.Duration, decided bool) {
	need := quorum.Majority(len(answers))
	missing, most := len(answers), 0
	lefts := make(map[string][]time.Duration)
	for _, a := range answers {
		switch a.Verdict {
		case vote.Held:
			l := a.Left
			if l < 0 {
				l = math.MaxInt64 // no expiry
			}
			lefts[a.Holder] = append(lefts[a.Holder], l)
			most = max(most, len(lefts[a.Holder]))
			missing--
		case vote.NotOurs:
			missing--
		}
	}
	for holder, l := range lefts {
		if len(l) < need {
			continue
		}
		slices.Sort(l)
		left = l[len(l)-need]
		if left == math.MaxInt64 {
			left = -1
		}
		return holder, left, true
	}
	return "", 0, most+missing < need
}

// oneShot is one call for a lock under a given id.
type oneShot struct {
	client   *Client
	op, name string
	key, id  string
	ttl      time.Duration
}

// release asks a node to delete what the call left there, or is to delete.
func (o *oneShot) release() vote.Release { return vote.Release{Key: o.key, ID: o.id, TTL: o.ttl} }

// oneShot begins a call, which c.calls.Done ends.
func (c *Client) oneShot(ctx context.Context, op, name, id string) (*oneShot, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	key, err := c.key(name)
	switch {
	case err != nil:
		return nil, err
	case id == "":
		return nil, invalid("the id is empty: give one that no other holder has")
	case len(id) > maxID:
		return nil, invalid("the id has %d bytes: use %d at most", len(id), maxID)
	}
	call := &oneShot{client: c, op: op, name: name, key: key, id: id}
	if err := c.enter(); err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			c.calls.Done()
		}
	}()
	if ctx.Err() != nil {
		return nil, call.ended(ctx)
	}
	if err := c.usable(); err != nil {
		return nil, err
	}
	begun = true
	return call, nil
}

func (o *oneShot) ended(ctx context.Context) error {
	return fmt.Errorf("%s %q: %w", o.op, o.name, context.Cause(ctx))
}

// vote puts a poll to the vote: true when a quorum granted, false when so many
// nodes said no that none can have.
func (o *oneShot) vote(ctx context.Context, p quorum.Poll) (bool, error) {
	no := func(answers []vote.Answer) bool {
		return quorum.Count(answers, vote.Held, vote.NotOurs) > len(answers)-quorum.Majority(len(answers))
	}
	p.Enough = func(answers []vote.Answer) bool {
		need := quorum.Majority(len(answers))
		return quorum.Count(answers, vote.Granted) >= need || no(answers) ||
			quorum.Count(answers, vote.Refused) > len(answers)-need
	}
	granted, answers := o.client.engine.Put(ctx, p)
	switch {
	case granted || no(answers):
		return granted, nil
	case ctx.Err() != nil:
		return false, o.ended(ctx)
	}
	return false, newQuorumError(o.op, o.name, o.client.answers(answers))
}

// Detach hands the lock over to whoever keeps the id that it returns: from then
// on it is not renewed, Close does not release it, and its context is done.
// ExtendTake and Release do with it what they do with a lock taken by Take, here
// or in another process. It does not block.
//
// The error wraps ErrLost or ErrReleased when the lock was not held any more.
func (l *Lock) Detach() (id string, err error) {
	if err := l.Err(); err != nil {
		return "", err
	}
	last, first := l.finish(lockReleased, fmt.Errorf("%w: detached", ErrReleased))
	if !first {
		return "", last
	}
	if !l.end() || !l.holder.Lease.Detach() { // released at the same time
		return "", ErrReleased
	}
	l.client.waitqueue.LetGo(&l.holder)
	return l.holder.Lease.ID(), nil
}
