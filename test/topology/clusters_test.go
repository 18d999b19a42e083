package topology

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// ledger is who has each name, and under which token it was last had.
type ledger struct {
	mu     sync.Mutex // guards what follows
	holder map[string]*redlatch.Lock
	token  map[string]uint64
	count  map[string]int
}

// enter notes a lock that was acquired.
func (l *ledger) enter(t *testing.T, name string, lock *redlatch.Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.holder[name]; other != nil && lock.Err() == nil && other.Err() == nil {
		t.Errorf("%s has two holders, with tokens %d and %d", name, other.Token(), lock.Token())
	}
	if lock.Token() <= l.token[name] {
		t.Errorf("%s: token %d follows %d", name, lock.Token(), l.token[name])
	}
	l.holder[name], l.token[name] = lock, lock.Token()
	l.count[name]++
}

// exit notes that it is about to be released.
func (l *ledger) exit(name string, lock *redlatch.Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder[name] == lock {
		l.holder[name] = nil
	}
}

// counts is how often each of the names was locked.
func (l *ledger) counts(names []string) (counts []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		counts = append(counts, l.count[name])
	}
	return counts
}

// goesOn waits until each of the names was locked several times more.
func (l *ledger) goesOn(t *testing.T, while string, names ...string) {
	t.Helper()
	before := l.counts(names)
	ctx := locktest.Within(t, 4*locktest.Patience)
	for {
		now := l.counts(names)
		least := now[0] - before[0]
		for i := range now {
			least = min(least, now[i]-before[i])
		}
		if least >= 5 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %q were locked %v times, %v before", while, names, now, before)
		}
		storm.Rest(ctx, 10*time.Millisecond)
	}
}

// Three Clusters are the nodes of one Redlock: a lock needs the shard of its slot in two of them,
// whichever master that is, and what befalls other shards is nothing to it.
func TestThreeClusters(t *testing.T) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		const ttl = fixTTL
		var clusters []*redistest.Cluster
		var conf redlatch.Config
		var quarantine time.Duration
		var nodes []string
		for _, name := range []string{"a", "b", "c"} {
			c, config, d := storm.NewCluster(t, binary, 0, ttl)
			clusters, conf, quarantine = append(clusters, c), config, d
			nodes = append(nodes, clusterURL(c.Masters)+"#"+name)
		}
		conf.Nodes = nodes
		a, b, c := clusters[0], clusters[1], clusters[2]
		clients := []*redlatch.Client{locktest.Open(t, conf), locktest.Open(t, conf), locktest.Open(t, conf)}
		for _, name := range []string{"a", "b", "c"} {
			locktest.Await(t, "the Cluster is vouched for", func() bool { return clients[0].Admit(t.Context(), name) == nil })
		}

		names := []string{storm.NameAt(0), storm.NameAt(1), storm.NameAt(2)}
		l := &ledger{holder: make(map[string]*redlatch.Lock), token: make(map[string]uint64), count: make(map[string]int)}
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		defer workers.Wait()
		defer cancel()
		for _, client := range clients {
			for _, name := range names {
				workers.Go(func() {
					for ctx.Err() == nil {
						lock, err := client.Lock(ctx, name)
						if err != nil {
							continue
						}
						l.enter(t, name, lock)
						storm.Rest(ctx, 5*time.Millisecond)
						l.exit(name, lock)
						lock.Unlock(context.WithoutCancel(ctx))
						storm.Rest(ctx, 5*time.Millisecond)
					}
				})
			}
		}
		l.goesOn(t, "all are up", names...)
		must(t, a.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(names[0]), a.Masters[1], func(string) {}))
		l.goesOn(t, "a slot was moved in a", names...)
		b.Masters[0].Kill()
		l.goesOn(t, "a shard of b is dead", names...)

		// The slot that b lacks hangs in c as well: one Cluster of three has it.
		must(t, c.Masters[0].Pause())
		t.Cleanup(func() { c.Masters[0].Resume() })
		locktest.Await(t, "no quorum has the slot", func() bool {
			_, err := clients[0].TryLock(t.Context(), "{"+names[0]+"}other")
			return errors.Is(err, redlatch.ErrNoQuorum)
		})
		l.goesOn(t, "a shard of b is dead and one of c hangs", names[1:]...)
		must(t, c.Masters[0].Resume())
		l.goesOn(t, "the shard of c goes on", names...)

		// b has the slot again, without its keys, and votes when locks of that time have run out.
		began := locktest.ServerTime(t, b.Masters[1])
		must(t, b.GiveSlots(locktest.Within(t, locktest.Patience), b.Masters[1], storm.SlotOf(names[0])))
		must(t, c.Masters[0].Pause())
		l.goesOn(t, "a and b have the slot", names...)
		if passed := locktest.ServerTime(t, b.Masters[1]).Sub(began); passed < quarantine {
			t.Errorf("b voted %v after it got the slot without its keys, want %v", passed, quarantine)
		}
		must(t, c.Masters[0].Resume())
		l.goesOn(t, "all have the slot", names...)
	})
}
