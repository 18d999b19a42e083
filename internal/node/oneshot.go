package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// Way is what the one-shot steps on a node are made of.
type Way uint8

// The ways.
const (
	// AnyWay is the first of the following that the node can do. With the quarantine these are
	// scripts alone, because no command can ask for an admission.
	AnyWay Way = iota
	Scripts
	// Native uses single commands that compare.
	Native
	// Watch uses WATCH, MULTI and EXEC.
	Watch
)

// means is one way to do a step, named by the command that it depends on.
type means struct {
	way     Way
	command string
	try     func() vote.Answer
}

// unable knows what a node could not do, found out by trying. The version tells nothing (Valkey 8
// and 9 call themselves Redis 7.2.4).
type unable struct {
	mu       sync.Mutex // guards refusals; nothing is called while it is held
	refusals map[string]refusal
}

// refusal is a server's answer to a command on the connection of that number.
type refusal struct {
	connection uint64
	err        error
}

func (u *unable) note(command string, r refusal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refusals == nil {
		u.refusals = make(map[string]refusal)
	}
	u.refusals[command] = r
}

// forget has every command tried again.
func (u *unable) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.refusals)
}

// of returns the server's refusal of the command on that connection, nil if none is known.
func (u *unable) of(command string, connection uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r, ok := u.refusals[command]; ok && r.connection == connection {
		return r.err
	}
	return nil
}

// first does a step by the first means of the given way that the node is capable of. A command that
// the node does not know, or denies, was not executed, so the next means may follow.
func (n *Node) first(way Way, all ...means) vote.Answer {
	quarantine := !n.options.Agreement.NoQuarantine
	var refusals []error
	for _, m := range all {
		if way != AnyWay && way != m.way || quarantine && m.way != Scripts {
			continue
		}
		connection := n.conn.Connections()
		if err := n.unable.of(m.command, connection); err != nil {
			refusals = append(refusals, err)
			continue
		}
		a := m.try()
		if a.Verdict != vote.Refused || !isUnable(a.Err) && !errors.Is(a.Err, errNoTransaction) && !errors.Is(a.Err, errUnacknowledged) {
			return a
		}
		if !driver.KeyDenied(a.Err) {
			n.unable.note(m.command, refusal{connection, a.Err})
		}
		refusals = append(refusals, a.Err)
	}
	n.unable.forget() // somebody may permit a command, which counts for connections that are there as well
	if quarantine {
		refusals = append(refusals, errors.New("NoQuarantine: only scripts can tell whether the node was admitted; permit EVAL, EVALSHA and INFO, or switch the quarantine off"))
	}
	return vote.Answer{Verdict: vote.Refused, Err: errors.Join(refusals...)}
}

// Take sets the key, under an ID that may be Reused.
func (n *Node) Take(ctx context.Context, way Way, r vote.Acquire) vote.Answer {
	set := func() vote.Answer {
		reply, err := n.write(ctx, "SET", r.Key, r.ID, "NX", "PX", milliseconds(r.TTL))
		if err != nil || reply.Kind != driver.Null {
			return done(reply, err)
		}
		a := n.Query(ctx, r.Key)
		if a.Verdict == vote.Refused && !isUnable(a.Err) {
			return a // NX says nothing about a key of another type
		}
		return vote.Answer{Verdict: vote.Held, Holder: a.Holder, Left: a.Left}
	}
	return n.first(way,
		means{Scripts, "EVALSHA", func() vote.Answer { return n.Acquire(ctx, r) }},
		means{Native, "SET NX", set},
		means{Watch, "SET NX", func() vote.Answer {
			if _, ok := n.conn.(driver.Comparer); !ok {
				return vote.Answer{Verdict: vote.Refused, Err: errNoTransaction} // the key could not be released
			}
			return set()
		}},
	)
}

// Prolong prolongs the key if it is held under the ID.
func (n *Node) Prolong(ctx context.Context, way Way, r vote.Extend) vote.Answer {
	ttl := milliseconds(r.TTL)
	return n.first(way,
		means{Scripts, "EVALSHA", func() vote.Answer { return n.Extend(ctx, r) }},
		means{Native, "SET IFEQ", func() vote.Answer {
			return done(n.write(ctx, "SET", r.Key, r.ID, "IFEQ", r.ID, "PX", ttl))
		}},
		means{Watch, "WATCH", func() vote.Answer {
			if n.replicas != nil {
				return vote.Answer{Verdict: vote.Refused, Err: errUnacknowledged}
			}
			if err := n.agrees(ctx); err != nil {
				return failure(err)
			}
			a, set := n.ifOurs(ctx, r.Key, r.ID, n.inFlight.votes, "PEXPIRE", r.Key, ttl, "GT")
			if a.Verdict == vote.Granted && set.Int == 0 {
				// The key has more time left, or somebody has made it persistent: then it expires again,
				// when prolong.lua would have it expire.
				a, _ = n.ifOurs(ctx, r.Key, r.ID, n.inFlight.votes, "PEXPIRE", r.Key, n.counterTTL, "NX")
			}
			return a
		}},
	)
}

// Drop deletes the key if it is held under the ID. If the reply is lost, it asks once more. A node
// that has no such key then may have deleted it the first time.
func (n *Node) Drop(ctx context.Context, way Way, r vote.Release) vote.Answer {
	a := n.drop(ctx, way, r)
	if a.Verdict != vote.Unknown || ctx.Err() != nil {
		return a
	}
	again := n.drop(ctx, way, r)
	switch again.Verdict {
	case vote.Granted:
		return again
	case vote.NotOurs, vote.Held:
		a.Err = fmt.Errorf("%w; asked again it has no key of this holder, which it may have deleted the first time", a.Err)
	}
	return a
}

func (n *Node) drop(ctx context.Context, way Way, r vote.Release) vote.Answer {
	return n.first(way,
		means{Scripts, "EVALSHA", func() vote.Answer { return answer(n.release(ctx, r)) }},
		means{Native, "DELEX", func() vote.Answer { return done(n.deletion(ctx, "DELEX", r.Key, "IFEQ", r.ID)) }},
		means{Native, "DELIFEQ", func() vote.Answer { return done(n.deletion(ctx, "DELIFEQ", r.Key, r.ID)) }},
		means{Native, "SET IFEQ", func() vote.Answer {
			// Valkey 8.1 has no deletion that compares: the shortest expiry serves as one.
			return done(n.deletion(ctx, "SET", r.Key, r.ID, "IFEQ", r.ID, "PX", "1"))
		}},
		means{Watch, "WATCH", func() vote.Answer {
			a, _ := n.ifOurs(ctx, r.Key, r.ID, n.inFlight.releases, "DEL", r.Key)
			return a
		}},
	)
}

// Query answers Held with the key's holder and remaining time, or NotOurs when nobody has the key.
func (n *Node) Query(ctx context.Context, key string) vote.Answer {
	for {
		before, _, err := n.values(ctx, false, key)
		if err != nil {
			return failure(err)
		}
		if before[0].Kind == driver.Null {
			return n.unheld(ctx, key)
		}
		left, err := n.command(ctx, "PTTL", key)
		if err != nil {
			return failure(err)
		}
		// The time is the holder's only if the same holder was there before and after.
		after, _, err := n.values(ctx, false, key)
		if err != nil {
			return failure(err)
		}
		if after[0].Kind == driver.Text && after[0].Text == before[0].Text {
			return vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(before[0].Text), Left: time.Duration(left.Int) * time.Millisecond}
		}
	}
}

var errNoTransaction = errors.New("this kind of connection has none for a transaction")

// errUnacknowledged: a transaction has a connection of its own, whose server was not looked at.
var errUnacknowledged = errors.New("Config.Replicas: replicas acknowledge no transaction; permit scripts, or SET with IFEQ")

// write sends a command that is a vote.
func (n *Node) write(ctx context.Context, args ...string) (driver.Reply, error) {
	inFlight := n.votes.Load()
	seen, err := n.ready(ctx, inFlight, n.options.Patience)
	if err != nil {
		return driver.Reply{}, err
	}
	var reply driver.Reply
	if err = n.agrees(ctx); err == nil {
		reply, err = n.conn.Do(ctx, args...)
	}
	reply, err = n.answered(ctx, inFlight, seen, reply, err)
	return n.counted(ctx, seen, reply, err)
}

// agrees returns an error where this client's settings are not the deployment's, as far as the client has
// read these not long ago.
func (n *Node) agrees(ctx context.Context) error {
	for range maxLooks {
		if n.connected() {
			if seen := n.link.seen.Load(); n.options.Clock.Now().Since(seen.at) <= agreeLimit {
				return seen.refusal
			}
		}
		if err := n.connectAnew(ctx); err != nil {
			return err
		}
	}
	return errAdmissionChanges // inspections come between, which have not compared yet
}

// agreeLimit is how old what a client knows of the deployment may be when a vote is sent that does not
// read the admission. Together with the longest attempt it is less than what a quarantine, which a change
// of the deployment begins, adds to the longest TTL.
const agreeLimit = 1500 * time.Millisecond

// command sends a command that only asks.
func (n *Node) command(ctx context.Context, args ...string) (driver.Reply, error) {
	seen, err := n.ready(ctx, n.inFlight, n.options.Patience)
	if err != nil {
		return driver.Reply{}, err
	}
	reply, err := n.conn.Do(ctx, args...)
	return n.answered(ctx, n.inFlight, seen, reply, err)
}

// deletion sends a command that deletes. It is also sent to a node with unanswered commands.
func (n *Node) deletion(ctx context.Context, args ...string) (driver.Reply, error) {
	if err := n.readyToRelease(ctx); err != nil {
		return driver.Reply{}, err
	}
	reply, err := n.conn.Do(ctx, args...)
	return reply, n.ended(ctx, n.inFlight, n.inFlight.releases, err)
}

// ifOurs runs a command in a transaction if the key is held under id, and also returns the command's reply. A
// transaction has a connection of its own and may overtake the command that sets the key: what it has not
// found is looked for behind that command.
func (n *Node) ifOurs(ctx context.Context, key, id string, taken semaphore, command ...string) (vote.Answer, driver.Reply) {
	for looked := false; ; looked = true {
		a, reply := n.transaction(ctx, key, id, taken, command)
		if looked || a.Verdict != vote.NotOurs && a.Verdict != vote.Held || len(n.votes.Load().votes) == 0 {
			return a, reply
		}
		if _, err := n.command(ctx, "GET", key); err != nil {
			return failure(err), driver.Reply{}
		}
	}
}

// transaction makes one try of ifOurs.
func (n *Node) transaction(ctx context.Context, key, id string, taken semaphore, command []string) (a vote.Answer, reply driver.Reply) {
	comparer, ok := n.conn.(driver.Comparer)
	if !ok {
		return vote.Answer{Verdict: vote.Refused, Err: errNoTransaction}, reply
	}
	if err := n.Connect(ctx); err != nil {
		return failure(err), reply
	}
	if err := taken.take(ctx); err != nil {
		return failure(err), reply
	}
	defer taken.free()
	found, reply, err := comparer.IfEqual(ctx, key, id, command...)
	switch late := ctx.Err() != nil && errors.Is(err, ctx.Err()); { // the step's own end, which nobody has cancelled
	case late && errors.Is(err, driver.ErrNotSent):
		return failure(driver.NotSent(errNoTime)), reply
	case late:
		return failure(errNoAnswer), reply
	case err != nil:
		return failure(err), reply
	case found.Kind == driver.Null:
		return vote.Answer{Verdict: vote.NotOurs}, reply
	case found.Text != id:
		return vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(found.Text)}, reply
	}
	return vote.Answer{Verdict: vote.Granted}, reply
}

// done converts the reply of a command that compares to an Answer.
func done(reply driver.Reply, err error) vote.Answer {
	switch {
	case err != nil:
		return failure(err)
	case reply.Kind == driver.Text && reply.Text == "OK", reply.Kind == driver.Int && reply.Int > 0:
		return vote.Answer{Verdict: vote.Granted}
	}
	return vote.Answer{Verdict: vote.NotOurs}
}
