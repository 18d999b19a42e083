package interop

import (
	"context"
	"crypto/rand"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// commandPeer stands for a library that cannot be run here: it sends the
// commands that the library's source has, and counts a majority as the library
// does.
type commandPeer struct {
	nodes []*redistest.Server
	// set and unlock are one node's commands, which succeed with the reply done.
	set    func(key, id string, ttl time.Duration) []string
	unlock func(name, id string) (command []string, done int64)
	prefix string
	name   string
	id     string
}

// compareAndDelete is the release of RedLock.net and of pottery.
const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`

func setMilliseconds(key, id string, ttl time.Duration) []string {
	return []string{"SET", key, id, "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10)}
}

func openRedLockNet(_ *testing.T, nodes []*redistest.Server) peer {
	p := &commandPeer{nodes: nodes, prefix: "redlock:", set: setMilliseconds}
	p.unlock = func(name, id string) ([]string, int64) {
		return []string{"EVAL", compareAndDelete, "1", p.prefix + name, id}, 1
	}
	return p
}

// openPottery: pottery has RedLock.net's keys and the same commands.
func openPottery(t *testing.T, nodes []*redistest.Server) peer { return openRedLockNet(t, nodes) }

// pythonRedisLockUnlock deletes the lock and wakes one waiter through a list.
const pythonRedisLockUnlock = `if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end
redis.call('del', KEYS[2])
redis.call('lpush', KEYS[2], 1)
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('del', KEYS[1])
return 0`

func openPythonRedisLock(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{
		nodes:  nodes,
		prefix: "lock:",
		set: func(key, id string, ttl time.Duration) []string {
			return []string{"SET", key, id, "EX", strconv.FormatInt(int64(ttl.Seconds()), 10), "NX"}
		},
		unlock: func(name, id string) ([]string, int64) {
			return []string{"EVAL", pythonRedisLockUnlock, "2", "lock:" + name, "lock-signal:" + name, id, "1000"}, 0
		},
	}
}

func (p *commandPeer) acquire(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	p.name, p.id = name, rand.Text()
	votes := 0
	for _, s := range p.nodes {
		reply, err := s.Do(p.set(p.prefix+name, p.id, ttl)...)
		if err != nil {
			return false, err
		}
		if reply == "OK" {
			votes++
		}
	}
	if votes > len(p.nodes)/2 {
		return true, nil
	}
	_, err := p.release(ctx)
	return false, err
}

func (p *commandPeer) release(context.Context) (bool, error) {
	votes := 0
	for _, s := range p.nodes {
		command, done := p.unlock(p.name, p.id)
		reply, err := s.Do(command...)
		if err != nil {
			return false, err
		}
		if reply == done {
			votes++
		}
	}
	return votes > len(p.nodes)/2, nil
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
