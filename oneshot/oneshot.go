package oneshot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Commands says which commands a call sends to the nodes.
type Commands = node.Way

// The values of Config.Commands.
const (
	// CommandsAuto uses scripts if the node runs them. With NoQuarantine, a node that forbids
	// scripts gets CommandsNative or, if it does not know those commands, CommandsWatch. Where it
	// can do neither, Take still takes, and the key stays for its TTL.
	CommandsAuto = node.AnyWay
	// CommandsScript uses the scripts of redlatch.Client.Lock: Take asks whether the node is
	// admitted, and raises the counter of fencing tokens.
	CommandsScript = node.Scripts
	// CommandsNative uses SET NX PX to take; SET IFEQ (Valkey 8.1, Redis 8.4) to extend; and DELEX
	// (Redis 8.4), DELIFEQ (Valkey 9.0) or SET IFEQ with an expiry of 1 ms to release. An extension
	// may shorten the lock.
	CommandsNative = node.Native
	// CommandsWatch uses SET NX PX, then WATCH, MULTI and EXEC, which any server has. It uses up to
	// four further connections to a node, and takes three round trips, or six to extend a lock that
	// has more time left than that or a key without an expiry. A node that is a Redis Cluster or
	// behind package goredis has no transactions, and refuses Take, Extend and Release. With
	// Config.Replicas every node refuses Extend.
	CommandsWatch = node.Watch
)

const (
	// maxID bounds an id, in bytes.
	maxID = 512
	// anyID stands for the id in a call that has none.
	anyID = "*"
	// patient is how many steps' time a call may take during which no validity runs.
	patient = 4
)

// Config says how the calls are made. The zero value is the default.
type Config struct {
	// Commands says what Take, Extend and Release send; Query and Inspect only read. CommandsNative
	// and CommandsWatch cannot tell whether a node is admitted, and are refused unless the
	// redlatch.Config has NoQuarantine. Defaults to CommandsAuto.
	Commands Commands
}

// Client makes one-shot calls on the nodes of a *redlatch.Client. It is safe for concurrent use. It
// has nothing to close: redlatch.Client.Close waits for its calls, and later calls fail.
type Client struct {
	inside   hook.Client
	nodes    []hook.OneShotNode
	commands Commands
}

// New returns a Client with the default Config. It does not block, and panics if client is
// nil.
func New(client *redlatch.Client) *Client {
	if client == nil {
		panic("oneshot: New has no *redlatch.Client: pass that of redlatch.Open")
	}
	inside := hook.ClientOf(client)
	return &Client{inside: inside, nodes: inside.Nodes()}
}

// NewWith is New with a Config. The error wraps redlatch.ErrInvalid when the Config cannot work
// with that client.
func NewWith(client *redlatch.Client, config Config) (*Client, error) {
	c := New(client)
	switch {
	case config.Commands > CommandsWatch:
		return nil, invalid("oneshot: Config.Commands is %d: use CommandsAuto, CommandsScript, CommandsNative or CommandsWatch", config.Commands)
	case config.Commands > CommandsScript && !c.inside.NoQuarantine():
		return nil, invalid("oneshot: Config.Commands: only scripts can tell whether a node was admitted: use CommandsScript, or set NoQuarantine")
	}
	c.commands = config.Commands
	return c, nil
}

// Take makes one try to take the lock name under an id of the caller's own, for ttl. Nothing renews
// it. It is for programs that take a lock in one process and release it in another; all others
// should use redlatch.Client.Lock.
//
// It returns true if the lock is held: until ttl less its drift, 1 % and 2 ms, has passed since the
// call. It returns false if somebody has the lock, possibly under this very id: two callers with
// the same id exclude each other, as they do with the LockTake of StackExchange.Redis.
//
// The id is compared whole. Use a new id for each Take (crypto/rand.Text makes one): otherwise a
// late release of an earlier take can release a later one. A Take that fails deletes the keys that
// it is known to have set. It does not delete those on nodes that did not answer, which may be of
// an earlier take under the id. So after an error the caller may Release the id, or find out with
// Extend whether the take was executed after all. If ctx ended first, keys are deleted in the
// background: an Extend with the same *redlatch.Client waits for that, and one of another program may
// return true for a lock that is then deleted.
//
// It waits for a quorum, for NodeTimeout at most (with Config.Replicas, twice its Timeout more),
// and if it then has keys to delete, for four times as long at most; or for ctx. Keys that the
// nodes set later than 2 s after the start, because this process was held up, are deleted, too.
// Errors: redlatch.ErrInvalid, before anything is sent; redlatch.ErrNoQuorum,
// redlatch.ErrNotAdmitted or redlatch.ErrRefused in a *redlatch.QuorumError with each node's
// answer; ctx's cause; redlatch.ErrClosed.
//
// There is no fencing token.
func (c *Client) Take(ctx context.Context, name, id string, ttl time.Duration) (bool, error) {
	call, err := c.begin(ctx, "take", name, id)
	if err != nil {
		return false, err
	}
	defer call.leave()
	if call.ttl, err = c.inside.WholeTTL(ttl); err != nil {
		return false, err
	}
	request := vote.Acquire{Key: call.key, ID: id, TTL: call.ttl, Reused: true}
	granted, err := call.vote(ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Take(ctx, c.commands, request) },
		Undo:     func(ctx context.Context, i int) { c.nodes[i].Drop(ctx, c.commands, call.release()) },
		Of:       call.of(),
		TTL:      call.ttl,
		Longest:  vote.LongestAttempt,
		Patience: 1,
	})
	if errors.Is(err, redlatch.ErrHeld) {
		return false, nil
	}
	return granted, err
}

// Extend prolongs the lock name to ttl from now if it is held under id, whether by a Take, here or
// elsewhere, or after redlatch.Lock.Detach. It never takes the lock anew.
//
// It returns true if the lock is held: until ttl less its drift has passed since the call. It
// returns false if the lock is free or another's; nodes that still had it under id may have
// prolonged it. A node that has lost its keys is not given the lock again, as Lock.Extend would do:
// the lock is lost once a majority has, even one node after the other. A lock is not shortened,
// except with CommandsNative, also where CommandsAuto chose that. Where the ctx of a Take under the
// id has ended, Extend first waits until that has deleted what it deletes. Otherwise waiting and
// errors are those of Take. After an error the lock is held for as long as before, or longer. For a
// client whose settings are not the deployment's, the *redlatch.QuorumError wraps
// redlatch.ErrInvalid as well, and nothing was prolonged.
func (c *Client) Extend(ctx context.Context, name, id string, ttl time.Duration) (bool, error) {
	call, err := c.begin(ctx, "extend", name, id)
	if err != nil {
		return false, err
	}
	defer call.leave()
	if call.ttl, err = c.inside.WholeTTL(ttl); err != nil {
		return false, err
	}
	return call.vote(ctx, quorum.Poll{
		Ask: func(ctx context.Context, i int) vote.Answer {
			return c.nodes[i].Prolong(ctx, c.commands, vote.Extend{Key: call.key, ID: id, TTL: call.ttl})
		},
		Of:       call.of(),
		TTL:      call.ttl,
		Patience: 1,
	})
}

// Release releases the lock name if it is held under id, whoever took it.
//
// It returns true if a quorum of nodes had the lock under id and has it no more. It returns false
// if so many nodes did not have it that no quorum had it. An error leaves that open: a node whose
// answer was lost may have released the lock, so that a further Release may return false though the
// first one released it.
//
// It waits for a quorum, for a few NodeTimeouts at most, or for ctx; when ctx ends meanwhile it goes
// on in the background. If ctx is done before the call, nothing is sent. A node that does not answer
// keeps its key for the rest of the TTL, as does one that a Take by another client reaches
// only after the release. Errors are those of Take.
func (c *Client) Release(ctx context.Context, name, id string) (bool, error) {
	call, err := c.begin(ctx, "release", name, id)
	if err != nil {
		return false, err
	}
	defer call.leave()
	return call.vote(ctx, quorum.Poll{
		Ask:      func(ctx context.Context, i int) vote.Answer { return c.nodes[i].Drop(ctx, c.commands, call.release()) },
		Of:       call.of(),
		InOrder:  true,
		Patience: patient,
	})
}

// call is one call for a lock under a given id.
type call struct {
	client   *Client
	op, name string
	key, id  string
	ttl      time.Duration
	leave    func()
}

// release returns the request to delete what the call left on a node, or was made to delete.
func (c *call) release() vote.Release { return vote.Release{Key: c.key, ID: c.id} }

// of tells the call's key and id from all others.
func (c *call) of() string { return strconv.Quote(c.key) + c.id }

// begin checks the arguments of a call and begins it. The call's leave ends it.
func (c *Client) begin(ctx context.Context, op, name, id string) (*call, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	key, err := c.inside.Key(name)
	switch {
	case err != nil:
		return nil, err
	case id == "":
		return nil, invalid("the id is empty: give one that no other holder has")
	case strings.HasPrefix(id, vote.SharedMark):
		return nil, invalid("the id %q begins with %q, by which keys that readers have are known: give another", id, vote.SharedMark)
	case len(id) > maxID:
		return nil, invalid("the id has %d bytes: use %d at most", len(id), maxID)
	}
	call := &call{client: c, op: op, name: name, key: key, id: id}
	if ctx.Err() != nil {
		return nil, call.ended(ctx)
	}
	if call.leave, err = c.inside.Enter(); err != nil {
		return nil, fmt.Errorf("%s %q: %w", op, name, err)
	}
	return call, nil
}

func (c *call) ended(ctx context.Context) error {
	return fmt.Errorf("%s %q: %w", c.op, c.name, context.Cause(ctx))
}

// vote puts a poll to the vote. It returns true when a quorum granted, and false when so many nodes
// said no that no quorum can grant.
func (c *call) vote(ctx context.Context, p quorum.Poll) (bool, error) {
	no := func(answers []vote.Answer) bool {
		return quorum.Count(answers, vote.Held, vote.NotOurs) > len(answers)-quorum.Majority(len(answers))
	}
	p.Enough = func(answers []vote.Answer) bool {
		need := quorum.Majority(len(answers))
		return quorum.Count(answers, vote.Granted) >= need || no(answers) ||
			quorum.Count(answers, vote.Refused) > len(answers)-need
	}
	granted, answers := c.client.inside.Put(ctx, p)
	switch {
	case granted || no(answers):
		return granted, nil
	case ctx.Err() != nil:
		return false, c.ended(ctx)
	}
	return false, c.client.inside.Failure(c.op, c.name, answers)
}

var errNilContext = invalid("ctx is nil: pass context.Background() or the request's context")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", redlatch.ErrInvalid, fmt.Errorf(format, args...))
}
