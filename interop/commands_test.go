package interop

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// commandPeer stands for a library that cannot be run here: it sends the
// commands that the library's source has, and counts votes as the library
// does.
type commandPeer struct {
	nodes []*redistest.Server
	// prefix is that of its keys.
	prefix string
	// set, extend and unlock are one node's steps. extend is nil where the library has none.
	set, extend, unlock step
	// quorum is how many nodes are enough: more than half of them where it is 0.
	quorum float64
	// newID is what the library makes its values of; nil for some text.
	newID func() string
	// renames: an extension has a new value.
	renames bool

	name, id, next string
}

// step reports whether a node did what p asks of it for its id, and for next where an
// extension has a new one.
type step func(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error)

func (p *commandPeer) key() string { return p.prefix + p.name }

func (p *commandPeer) enough(votes int) bool {
	if p.quorum == 0 {
		return votes > len(p.nodes)/2
	}
	return float64(votes) >= p.quorum
}

// each has all nodes take a step.
func (p *commandPeer) each(take step, ttl time.Duration) (bool, error) {
	votes := 0
	for _, s := range p.nodes {
		done, err := take(p, s, ttl)
		if err != nil {
			return false, err
		}
		if done {
			votes++
		}
	}
	return p.enough(votes), nil
}

func (p *commandPeer) acquire(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	p.name, p.id = name, rand.Text()
	if p.newID != nil {
		p.id = p.newID()
	}
	if held, err := p.each(p.set, ttl); held || err != nil {
		return held, err
	}
	_, err := p.release(ctx)
	return false, err
}

func (p *commandPeer) release(context.Context) (bool, error) { return p.each(p.unlock, 0) }

// prolong extends what acquire took, and reports whether the library believes that it holds it.
func (p *commandPeer) prolong(ttl time.Duration) (bool, error) {
	p.next = p.id
	if p.renames {
		p.next = rand.Text()
	}
	held, err := p.each(p.extend, ttl)
	p.id = p.next
	return held, err
}

// setMilliseconds is the SET of most.
func setMilliseconds(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error) {
	reply, err := s.Do("SET", p.key(), p.id, "NX", "PX", milliseconds(ttl))
	return reply == "OK", err
}

// setWhole is that of StackExchange.Redis, which names a TTL of whole seconds in these.
func setWhole(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error) {
	if ttl%time.Second != 0 {
		return setMilliseconds(p, s, ttl)
	}
	return setSeconds(p, s, ttl)
}

func setSeconds(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error) {
	reply, err := s.Do("SET", p.key(), p.id, "EX", strconv.Itoa(int(ttl.Seconds())), "NX")
	return reply == "OK", err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// compareAndDelete is the release of all that have a script for it.
const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`

func evalUnlock(p *commandPeer, s *redistest.Server, _ time.Duration) (bool, error) {
	reply, err := s.Do("EVAL", compareAndDelete, "1", p.key(), p.id)
	return reply == int64(1), err
}

func evalshaUnlock(p *commandPeer, s *redistest.Server, _ time.Duration) (bool, error) {
	reply, err := evalsha(s, compareAndDelete, p.key(), p.id)
	return reply == int64(1), err
}

// evalsha runs a script by its name, and loads it where the server does not know it.
func evalsha(s *redistest.Server, script, key string, args ...string) (any, error) {
	sum := sha1.Sum([]byte(script))
	command := append([]string{"EVALSHA", hex.EncodeToString(sum[:]), "1", key}, args...)
	reply, err := s.Do(command...)
	if refusal, ok := errors.AsType[redistest.ServerError](err); ok && refusal.Code() == "NOSCRIPT" {
		if _, err := s.Do("SCRIPT", "LOAD", script); err != nil {
			return nil, err
		}
		return s.Do(command...)
	}
	return reply, err
}

func openRedLockNet(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{nodes: nodes, prefix: "redlock:", set: setWhole, unlock: evalUnlock}
}

// openPottery: pottery has RedLock.net's keys.
func openPottery(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{nodes: nodes, prefix: "redlock:", set: setMilliseconds, unlock: evalUnlock}
}

// pythonRedisLockUnlock deletes the lock and wakes one waiter through a list.
const pythonRedisLockUnlock = `if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end
redis.call('del', KEYS[2])
redis.call('lpush', KEYS[2], 1)
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('del', KEYS[1])
return 0`

func openPythonRedisLock(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{nodes: nodes, prefix: "lock:", set: setSeconds, unlock: func(p *commandPeer, s *redistest.Server, _ time.Duration) (bool, error) {
		reply, err := s.Do("EVAL", pythonRedisLockUnlock, "2", p.key(), "lock-signal:"+p.name, p.id, "1000")
		return reply == int64(0), err
	}}
}

// Its waiters sleep until a list has an element. Our release pushes none, so
// they look again only when their own time is over.
func TestPythonRedisLockIsNotWoken(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := servers(t, binary, 1)
		name := lockName(t)
		lock, err := open(t, nodes, "lock:{name}").Lock(within(t, patience), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if reply := do(t, nodes[0], "EXISTS", "lock:"+name, "lock-signal:"+name); reply != int64(0) {
			t.Errorf("%v keys are left", reply)
		}
	})
}
