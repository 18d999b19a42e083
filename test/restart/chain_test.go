package restart

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

var chains = flag.Int("chains", 4, "how many chains of events TestChainsOfEvents runs, beside each other")

// What happens to a server comes in chains: its statistics are reset, then it is a replica for a while, then it loses
// its keys. After any of them a lock that it forgot goes to nobody else while it is held, and its token is not given again.
func TestChainsOfEvents(t *testing.T) {
	t.Parallel()
	base, flavors := seed.Of(t), redistest.Flavors()
	for i := range *chains {
		binary := flavors[i%len(flavors)]
		t.Run("", func(t *testing.T) {
			t.Parallel()
			c := newChain(t, binary, rand.New(rand.NewPCG(base, uint64(i))))
			for range 1 + c.rng.IntN(3) {
				c.happens(c.any)
			}
			var held *redlatch.Lock
			locktest.Await(t, "a lock is acquired", func() bool {
				var err error
				held, err = c.client.TryLock(t.Context(), "name", redlatch.WithoutRenewal())
				return err == nil
			})
			c.happened = append(c.happened, "a lock")
			c.happens(c.losses)
			if c.rng.IntN(2) == 0 {
				c.happens(c.any)
			}
			c.goesToNobodyElse(held)
		})
	}
}

// chain is what happens to one server. Its clients are that of the holder, and one that is idle all the time.
type chain struct {
	*testing.T
	rng           *rand.Rand
	server, other *redistest.Server
	config        redlatch.Config
	client, idle  *redlatch.Client
	old           string // a copy of the server's data, in which a lock was released
	losses, any   []event
	happened      []string
}

// event is something that happens to the server.
type event struct {
	name string
	do   func()
}

// newChain starts a server that has voted and has been up for longer than its quarantine, and another one that was
// its replica and has its data of that time.
func newChain(t *testing.T, binary string, rng *rand.Rand) *chain {
	// It soon forgets that it was promoted.
	options := redistest.Options{Binary: binary, Args: []string{"--repl-backlog-ttl", "1"}}
	c := &chain{T: t, rng: rng, server: redistest.New(t, options), other: redistest.New(t, options), old: filepath.Join(t.TempDir(), "old")}
	const ttl = 4 * time.Second
	c.config = locktest.WithMaxTTL(locktest.WithQuarantine(c.server.URL()), ttl)
	c.client, c.idle = locktest.Open(t, c.config), locktest.Open(t, c.config)
	locktest.Vouch(t, c.client, "n0")
	for _, client := range []*redlatch.Client{c.client, c.idle} {
		locktest.Unlock(t, locktest.TryLock(t, client, "used"))
	}
	c.redis("SAVE")
	if err := c.server.CopyData(c.old); err != nil {
		t.Fatal(err)
	}
	c.replicate()
	awaitUptime(t, c.server, ttl+4*time.Second)

	reset := func(maxTTLs ...time.Duration) func() {
		return func() {
			for _, maxTTL := range maxTTLs {
				config := c.config
				config.MaxTTL, config.TTL = maxTTL, min(maxTTL, ttl)
				if err := locktest.Open(t, config).Reset(t.Context(), "n0"); err != nil {
					t.Log(err) // it may be a replica's, or meet another event's changes
				}
			}
		}
	}
	c.losses = []event{
		{"restart, empty", func() { c.check(c.server.RestartEmpty(t.Context())) }},
		{"restart, with old data", func() { c.check(c.server.RestartWith(t.Context(), c.old)) }},
		{"FLUSHALL", func() { c.redis("FLUSHALL") }},
		{"FLUSHDB", func() { c.redis("FLUSHDB") }},
		{"SCRIPT FLUSH, FLUSHALL, RESETSTAT", func() { c.redis("SCRIPT", "FLUSH"); c.redis("FLUSHALL"); c.redis("CONFIG", "RESETSTAT") }},
		{"DEL of all keys", func() { deleteAll(t, c.server) }},
		{"SWAPDB", func() { c.redis("SWAPDB", "0", "1") }},
		{"failback", c.failback},
		{"failback, RESETSTAT", func() { c.failback(); c.redis("CONFIG", "RESETSTAT") }},
		{"failback, RESETSTAT, forgotten", func() { c.failback(); c.redis("CONFIG", "RESETSTAT"); awaitForgotten(t, c.server) }},
	}
	c.any = append([]event{
		{"RESETSTAT", func() { c.redis("CONFIG", "RESETSTAT") }},
		{"SCRIPT FLUSH", func() { c.redis("SCRIPT", "FLUSH") }},
		{"SWAPDB of others", func() { c.redis("SWAPDB", "2", "3") }},
		{"a replica comes and goes", c.replicate},
		{"DEL of the admission", func() { c.redis("DEL", "redlatch:{"+c.config.Deployment+"}:admitted") }},
		{"reset to the same", reset(ttl)},
		{"reset to longer and back", reset(2*ttl, ttl)},
		{"reset to shorter and back", reset(ttl/4, ttl)},
		{"another lock", func() {
			if lock, err := c.client.TryLock(t.Context(), "used"); err == nil {
				_ = lock.Unlock(t.Context()) // what it returns depends on the other events
			}
		}},
	}, c.losses...)
	return c
}

// happens has one of the events happen.
func (c *chain) happens(events []event) {
	e := events[c.rng.IntN(len(events))]
	c.happened = append(c.happened, e.name)
	e.do()
}

// replicate makes the other one a replica of the server, and a master again that has data of its own: neither can then
// follow the other without taking over all its data.
func (c *chain) replicate() {
	follow(c.T, c.other, c.server)
	locktest.Do(c.T, c.other, "REPLICAOF", "NO", "ONE")
	locktest.Do(c.T, c.other, "SET", "diverged", "1")
}

// failback makes the server follow the other one, whose data is old, and makes it a master again.
func (c *chain) failback() {
	follow(c.T, c.server, c.other)
	c.redis("REPLICAOF", "NO", "ONE")
}

func (c *chain) redis(args ...string) any {
	c.Helper()
	return locktest.Do(c.T, c.server, args...)
}

func (c *chain) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// cutOff returns a client whose connection is cut at one command in three, before or after that is executed.
func (c *chain) cutOff() *redlatch.Client {
	proxy := redistest.NewProxy(c.T, c.server.Addr())
	base, commands := c.rng.Uint64(), atomic.Uint64{}
	proxy.OnCommand(func(redistest.Command) redistest.Action {
		switch rand.New(rand.NewPCG(base, commands.Add(1))).IntN(6) {
		case 0:
			return redistest.CutBefore
		case 1:
			return redistest.CutAfter
		}
		return redistest.Pass
	})
	return locktest.Open(c.T, locktest.Through(c.config, "redis://"+proxy.Addr()))
}

// goesToNobodyElse has others ask for the lock until one gets it: not before held is over, and with a greater token.
func (c *chain) goesToNobodyElse(held *redlatch.Lock) {
	c.Helper()
	clients := []*redlatch.Client{c.idle, locktest.Open(c.T, c.config), c.cutOff()}
	var next *redlatch.Lock
	locktest.Await(c.T, "another client gets the lock", func() bool {
		for _, client := range clients {
			lock, err := client.TryLock(c.Context(), held.Name())
			if err == nil {
				next = lock
				return true
			}
		}
		return false
	})
	what := strings.Join(c.happened, "; ")
	if held.Err() == nil {
		c.Errorf("after %s: two holders, the first for another %v", what, time.Until(held.Until()))
	}
	if next.Token() <= held.Token() {
		c.Errorf("after %s: token %d after %d", what, next.Token(), held.Token())
	}
	locktest.Unlock(c.T, next)
	c.Log(what)
}
