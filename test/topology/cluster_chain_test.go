package topology

import (
	"context"
	"errors"
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
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/storm"
)

var chains = flag.Int("chains", 2, "how many chains of events TestClusterStormOfEvents runs, beside each other")

// What happens to a Cluster comes in chains: a slot moves, a replica that lags takes its new master's place, then the slot
// moves back. After any of them a lock that was forgotten goes to nobody else while it is held, and its token is not
// given again.
func TestClusterStormOfEvents(t *testing.T) {
	t.Parallel()
	base, flavors := seed.Of(t), redistest.Flavors()
	for i := range *chains {
		binary := flavors[i%len(flavors)]
		t.Run("", func(t *testing.T) {
			t.Parallel()
			c := newClusterChain(t, binary, rand.New(rand.NewPCG(base, uint64(i))))
			for range 1 + c.rng.IntN(2) {
				c.happens(c.before)
			}
			c.holds()
			next := storm.NewSuccessors(t, c.held)
			if c.rng.IntN(2) == 0 {
				c.happened = append(c.happened, "somebody asks")
				next.Ask(locktest.Open(t, c.config))
			}
			if c.rng.IntN(2) == 0 {
				c.happens(c.any)
			}
			c.happens(c.losses)
			if c.rng.IntN(2) == 0 {
				c.happens(c.any)
			}
			c.goesToNobodyElse(next)
		})
	}
}

// chainTTL is the TTL of a chain's lock.
const chainTTL = 4 * time.Second

// clusterChain is what happens to a Cluster that has a lock. Its clients are that of the holder, and one that is idle.
type clusterChain struct {
	*testing.T
	*hurtCluster
	rng          *rand.Rand
	name         string // of the lock, and of its slot
	client, idle *redlatch.Client
	held         *redlatch.Lock                  // nil until it is had
	old          map[*redistest.Server]string    // copies of the members' data, in which a lock was released
	elected      map[*redistest.Server]time.Time // when replicas were last elected
	lags         *redistest.Server               // the master whose replicas lack what is written; nil if none
	small        *redistest.Server               // a master that has come, which has no slots but perhaps the lock's; nil if none has

	losses, any []event
	before      []event // what may happen while nobody has the lock
	happened    []string
}

// event is something that happens to the Cluster.
type event struct {
	name string
	do   func()
}

// newClusterChain starts a Cluster that has voted and has been up for longer than its quarantine.
func newClusterChain(t *testing.T, binary string, rng *rand.Rand) *clusterChain {
	c := &clusterChain{T: t, rng: rng, name: storm.NameAt(0), old: make(map[*redistest.Server]string), elected: make(map[*redistest.Server]time.Time)}
	// A master soon forgets that it was promoted.
	c.hurtCluster = newHurtCluster(t, binary, 1, chainTTL, "--repl-backlog-ttl", "1", "--cluster-allow-replica-migration", "no")
	c.client, c.idle = locktest.Open(t, c.config), locktest.Open(t, c.config)
	c.admit(t, c.client)
	for _, client := range []*redlatch.Client{c.client, c.idle} {
		for i := range c.Masters {
			locktest.Unlock(t, locktest.TryLock(t, client, "{"+storm.NameAt(i)+"}used"))
		}
	}
	for i, s := range c.Members() {
		c.old[s] = filepath.Join(t.TempDir(), fmt.Sprint(i))
		locktest.Do(t, s, "SAVE")
		must(t, s.CopyData(c.old[s]))
	}
	c.uptime(t, c.Members()...)
	t.Cleanup(func() { t.Log(strings.Join(c.happened, "; ")) })
	c.losses = c.whatLoses()
	c.any = slices.Concat(c.losses, c.whatOperatorsDo(), c.whatServersDo())
	c.before = append(slices.Clone(c.any),
		event{"admit", func() { storm.Admit(c.T, c.client) }},
		event{"the replica lags", c.lag}, event{"the replica lags", c.lag}, event{"the slot moves, and the replica lags", func() { c.move(c.other()); c.lag() }})
	return c
}

// happens has one of the events happen, and waits until the Cluster is in order.
func (c *clusterChain) happens(events []event) {
	c.Helper()
	e := events[c.rng.IntN(len(events))]
	c.happened = append(c.happened, e.name)
	e.do()
	c.settle()
}

// settle waits until the Cluster is in order.
func (c *clusterChain) settle() {
	c.Helper()
	if c.lags == nil {
		must(c.T, c.AwaitServing(c.soon()))
	} else {
		must(c.T, c.AwaitAgreement(c.soon()))
	}
}

func (c *clusterChain) soon() context.Context { return locktest.Within(c.T, 3*locktest.Patience) }

func (c *clusterChain) redis(s *redistest.Server, args ...string) any {
	c.Helper()
	return locktest.Do(c.T, s, args...)
}

// holds has the client lock the name.
func (c *clusterChain) holds() {
	c.Helper()
	var options []redlatch.Option
	if c.rng.IntN(2) == 0 {
		options = append(options, redlatch.WithoutRenewal())
	}
	locktest.Await(c.T, "a lock is acquired", func() bool {
		var err error
		c.held, err = c.client.TryLock(c.Context(), c.name, options...)
		return err == nil
	})
	c.happened = append(c.happened, fmt.Sprintf("a lock (renewed: %t)", options == nil))
}

// uses has clients use the lock's slot, until the master that has it has answered each of them.
func (c *clusterChain) uses() {
	c.Helper()
	for _, client := range []*redlatch.Client{c.client, c.idle} {
		locktest.Await(c.T, "the slot is used", func() bool {
			lock, err := client.TryLock(c.Context(), "{"+c.name+"}used")
			if err == nil {
				_ = lock.Unlock(c.Context())
			}
			return err == nil || errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrNotAdmitted)
		})
	}
}

// goesToNobodyElse has others ask for the lock until one gets it: not before held is over, and with a greater token.
// A lock that is still held after a while is released.
func (c *clusterChain) goesToNobodyElse(next *storm.Successors) {
	c.Helper()
	over := time.Now().Add(chainTTL + time.Duration(c.rng.Int64N(int64(c.d))))
	clients := []*redlatch.Client{c.idle, locktest.Open(c.T, c.config), c.cutOff()}
	locktest.Await(c.T, "another client gets the lock after "+strings.Join(c.happened, "; "), func() bool {
		if time.Now().After(over) && c.held.Err() == nil {
			_ = c.held.Unlock(c.Context())
		}
		return slices.ContainsFunc(clients, next.Try)
	})
	next.Judge(strings.Join(c.happened, "; "))
}

// cutOff returns a client to which one command in three is lost, or its answer.
func (c *clusterChain) cutOff() *redlatch.Client {
	base, commands := c.rng.Uint64(), new(atomic.Uint64)
	return locktest.OpenIn(c.T, c.config, hook.Surroundings{Dial: func(string) (driver.Conn, error) {
		options, _, err := redisconn.Parse(c.config.Nodes[0])
		options.ConnectTimeout = time.Second
		return losing{redisconn.NewCluster(options), base, commands}, err
	}})
}

// losing is a Cluster's connection that loses commands and answers.
type losing struct {
	*redisconn.Cluster
	base     uint64
	commands *atomic.Uint64
}

var errLost = errors.New("the connection was lost")

func (c losing) lose(send func() (driver.Reply, error)) (driver.Reply, error) {
	chance := rand.New(rand.NewPCG(c.base, c.commands.Add(1))).IntN(6)
	if chance == 0 {
		return driver.Reply{}, errLost
	}
	reply, err := send()
	if chance == 1 {
		return driver.Reply{}, errLost
	}
	return reply, err
}

func (c losing) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	return c.lose(func() (driver.Reply, error) { return c.Cluster.Do(ctx, args...) })
}

func (c losing) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	return c.lose(func() (driver.Reply, error) { return c.Cluster.EvalSHA(ctx, sha, keys, args) })
}
