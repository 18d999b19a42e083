// Package storm has faults befall a Redis Cluster, or a master that Sentinels watch, while
// clients work under its locks, and judges from a record of all holders that there were never two of one lock. It is
// for the tests of the root package and of those that open clients in another way:
// nothing but tests imports it.
package storm

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

var holders = flag.Int("storm.holders", 0, "holders in a storm; 0 is as many as a few faults take")

// A storm's locks are short, so that a master is waited for 5 s only.
const (
	ttl         = time.Second
	nodeTimeout = 200 * time.Millisecond
	fewFaults   = 5
	patience    = 20 * time.Second // bounds what must happen; it says nothing about how fast
	margin      = patience         // beyond the wait: what a busy machine may need for a lock
	longest     = 6 * time.Minute  // without -storm.holders, on a busy machine
)

// Open opens a client for a deployment on the Cluster that has these masters, and has it
// closed when the test is done. The config is complete but for Nodes, which has to name
// the Cluster [Node].
type Open func(t *testing.T, config redlatch.Config, masters []*redistest.Server) *redlatch.Client

// Node is what the storm's clients call the Cluster.
const Node = "n0"

// storm is a Cluster of three masters and three replicas, clients whose workers lock a
// few names in turn, and faults by a plan that a seed decides.
type storm struct {
	*redistest.Cluster
	wait time.Duration // for a master that may have forgotten locks
	open func(*testing.T) *redlatch.Client
	luck *rand.Rand // of the faults alone
	locks
}

func start(t *testing.T, binary string, seed uint64, open Open) *storm {
	t.Helper()
	s := &storm{luck: rand.New(rand.NewPCG(seed, 0)), locks: newLocks()}
	var config redlatch.Config
	s.Cluster, config, s.wait = NewCluster(t, binary, 1, ttl,
		"--cluster-allow-replica-migration", "no", "--appendonly", "yes", "--appendfsync", "everysec")
	config.NodeTimeout = nodeTimeout
	for i := range s.Masters {
		s.names = append(s.names, NamesAt(i, 10)...)
	}
	s.open = func(t *testing.T) *redlatch.Client {
		t.Helper()
		return open(t, config, s.Masters)
	}
	for range 5 {
		s.clients = append(s.clients, s.open(t))
	}
	Admit(t, s.clients[0])
	return s
}

// Run has a storm go over a Cluster of one kind of server, and fails the test unless
// there were never two holders and never a token backward, whatever befell the masters,
// and every lock can be had once the wait after the last fault is over. It takes half a
// minute, or as long as -storm.holders asks for, and the processor.
func Run(t *testing.T, binary string, open Open) {
	if testing.Short() || raceEnabled {
		t.Skip("takes half a minute, and is too much for the race detector: make storm")
	}
	seed := seed.Of(t)
	s := start(t, binary, seed, open)
	ctx, cancel := context.WithTimeout(t.Context(), max(longest, time.Duration(*holders)*20*time.Millisecond))
	defer cancel()
	stop := s.begin(ctx, seed)
	defer stop()

	done := s.strike(ctx, t)
	s.lockAll(t)
	stop()
	s.check(t, done)
}

// lockAll wants each name granted to a client that has been there and to one that comes,
// no later than the wait after the last fault, which is over now, by the servers' time.
func (s *storm) lockAll(t *testing.T) {
	t.Helper()
	clock := s.Living()[0]
	now := func() time.Time {
		reply, err := clock.Do("TIME")
		if err != nil {
			t.Error(err)
			return time.Time{}
		}
		return TimeOf(reply)
	}
	last := now()
	clients := []*redlatch.Client{s.clients[0], s.clients[1], s.open(t)}
	ctx, cancel := context.WithTimeout(t.Context(), s.wait+margin+patience)
	defer cancel()
	var mu sync.Mutex // guards latest
	latest := make([]time.Duration, len(clients))
	var all sync.WaitGroup
	for i, name := range s.names {
		all.Go(func() {
			lock, err := clients[i%len(clients)].Lock(ctx, name)
			if err != nil {
				t.Errorf("%q cannot be locked: %v", name, err)
				return
			}
			s.holdings.keep(lock, 0, ctx.Done())
			lock.Unlock(ctx)
			passed := now().Sub(last)
			mu.Lock()
			defer mu.Unlock()
			latest[i%len(clients)] = max(latest[i%len(clients)], passed)
			if late := passed - s.wait; late > margin {
				t.Errorf("%q was granted to client %d %v after the wait of %v", name, i%len(clients), late, s.wait)
			}
		})
	}
	all.Wait()
	t.Logf("all locks were granted to three clients within %v of the last fault; the third is new", latest)
}

// strike has faults befall the Cluster until there were enough of them and of holders, and
// leaves it in order. It returns what was done.
func (s *storm) strike(ctx context.Context, t *testing.T) (done []string) {
	t.Helper()
	kinds := faultKinds()
	order := s.luck.Perm(len(kinds))
	for i := 0; ctx.Err() == nil; i++ {
		if *holders == 0 && i >= fewFaults && s.enough() || *holders > 0 && i >= len(kinds) && s.holdings.count() >= *holders {
			return done
		}
		f := kinds[order[i%len(order)]]
		// Sometimes right after the last one, sometimes when all vote again.
		pause := time.Duration(s.luck.Int64N(int64(s.wait + 500*time.Millisecond)))
		Rest(ctx, pause)
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		before := s.holdings.count()
		what, err := f.happen(s, limit)
		t.Logf("%v: %s: %s (%d holders so far)", time.Since(s.holdings.start).Round(time.Millisecond), f.name, what, before)
		if err == nil {
			err = s.AwaitServing(limit)
		}
		cancel()
		if err != nil {
			t.Logf("%s went wrong, and is mended: %v", f.name, err)
			if err := s.mend(ctx); err != nil {
				t.Fatalf("mending the Cluster after %s: %v", f.name, err)
			}
			continue
		}
		done = append(done, f.name)
	}
	t.Errorf("the time is over after %v", done)
	return done
}
