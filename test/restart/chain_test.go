package restart

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/storm"
)

var chains = flag.Int("chains", 4, "how many chains of events TestChainsOfEvents runs, beside each other")

// What happens to servers comes in chains: the statistics of one are reset, then it is a replica for a while, then it loses
// its keys. After any of them a lock that was forgotten goes to nobody else while it is held, and its token is not given again.
func TestChainsOfEvents(t *testing.T) {
	t.Parallel()
	base, flavors := seed.Of(t), redistest.Flavors()
	for i := range *chains {
		binary := flavors[i%len(flavors)]
		t.Run("", func(t *testing.T) {
			t.Parallel()
			rng, nodes := rand.New(rand.NewPCG(base, uint64(i))), 1
			if rng.IntN(3) == 0 {
				nodes = 3
			}
			c := newChain(t, binary, nodes, rng)
			for range 1 + c.rng.IntN(3) {
				c.happens(c.before)
			}
			var options []redlatch.Option
			if nodes > 1 || c.rng.IntN(2) == 0 { // renewed, it may stay on a majority for ever
				options = append(options, redlatch.WithoutRenewal())
			}
			var held *redlatch.Lock
			locktest.Await(t, "a lock is acquired", func() bool {
				var err error
				held, err = c.client.TryLock(t.Context(), "name", options...)
				return err == nil
			})
			c.happened = append(c.happened, "a lock")
			next := storm.NewSuccessors(t, held)
			if c.rng.IntN(2) == 0 {
				next.Ask(locktest.Open(t, c.config))
			}
			for range 1 + nodes/2 {
				c.happens(c.losses)
			}
			if c.rng.IntN(2) == 0 {
				c.happens(c.any)
			}
			c.goesToNobodyElse(next)
		})
	}
}

// chain is what happens to the nodes of a deployment. Its clients are that of the holder, and one that is idle all the time.
type chain struct {
	*testing.T
	rng          *rand.Rand
	nodes        []*chainNode
	*chainNode   // to which the present event happens
	config       redlatch.Config
	client, idle *redlatch.Client
	losses, any  []event
	before       []event // what may happen while nobody has the lock
	happened     []string
}

// chainNode is a node's server, and another one that follows it, or that it follows.
type chainNode struct {
	name          string
	server, other *redistest.Server
	old           string // a copy of the server's data, in which a lock was released
	databases     int    // how many of its databases were used up
}

// event is something that happens to the server.
type event struct {
	name string
	do   func()
}

// newChain starts servers that have voted and have been up for longer than their quarantine, and for each another one
// that was its replica and has its data of that time.
func newChain(t *testing.T, binary string, nodes int, rng *rand.Rand) *chain {
	// It soon forgets that it was promoted.
	options := redistest.Options{Binary: binary, Args: []string{"--repl-backlog-ttl", "1", "--enable-debug-command", "yes"}}
	c := &chain{T: t, rng: rng}
	var urls []string
	for i := range nodes {
		n := &chainNode{name: fmt.Sprintf("n%d", i), old: filepath.Join(t.TempDir(), "old")}
		n.server, n.other = redistest.New(t, options), redistest.New(t, options)
		c.nodes, urls = append(c.nodes, n), append(urls, n.server.URL())
	}
	c.config = locktest.WithMaxTTL(locktest.WithQuarantine(urls...), chainTTL)
	c.client, c.idle = locktest.Open(t, c.config), locktest.Open(t, c.config)
	for _, n := range c.nodes {
		locktest.Vouch(t, c.client, n.name)
	}
	for _, client := range []*redlatch.Client{c.client, c.idle} {
		locktest.Unlock(t, locktest.TryLock(t, client, "used"))
	}
	for _, c.chainNode = range c.nodes {
		c.redis("SAVE")
		c.check(c.server.CopyData(c.old))
		c.replicate()
	}
	for _, n := range c.nodes {
		awaitUptime(t, n.server, chainTTL+4*time.Second)
	}

	c.losses = c.whatLoses()
	c.any = slices.Concat(c.losses, c.whatOperatorsDo(), c.whatServersDo())
	c.before = append(slices.Clone(c.any), event{"admit", func() { c.note(c.client.Admit(t.Context(), c.name)) }})
	return c
}

// happens has one of the events happen to one of the nodes.
func (c *chain) happens(events []event) {
	e := events[c.rng.IntN(len(events))]
	c.chainNode = c.nodes[c.rng.IntN(len(c.nodes))]
	c.happened = append(c.happened, c.name+": "+e.name)
	e.do()
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
	var urls []string
	for _, n := range c.nodes {
		proxy := redistest.NewProxy(c.T, n.server.Addr())
		urls = append(urls, "redis://"+proxy.Addr())
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
	}
	return locktest.Open(c.T, locktest.Through(c.config, urls...))
}

// goesToNobodyElse has others ask for the lock until one gets it: not before held is over, and with a greater token.
func (c *chain) goesToNobodyElse(next *storm.Successors) {
	c.Helper()
	clients := []*redlatch.Client{c.idle, locktest.Open(c.T, c.config), c.cutOff()}
	locktest.Await(c.T, "another client gets the lock", func() bool { return slices.ContainsFunc(clients, next.Try) })
	what := strings.Join(c.happened, "; ")
	next.Judge(what)
	c.Log(what)
}
