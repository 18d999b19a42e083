package restart

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// ledger is a resource that nothing but the lock protects: who writes replaces
// it all.
type ledger struct {
	mu sync.Mutex // guards updates: one read or one write, not the time between
	// updates are the ones it contains.
	updates []int64
}

func (l *ledger) read() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.updates)
}

// write replaces the ledger's updates, and takes that back when held says that
// it came too late: a writer that did not get the processor in time is not the
// subject here.
func (l *ledger) write(updates []int64, held func() error) (late error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.updates
	l.updates = updates
	if late = held(); late != nil {
		l.updates = before
	}
	return late
}

// office is workers that update ledgers, each under its lock and two workers a
// ledger, from several clients, so that one restart meets many held locks.
type office struct {
	clients []*redlatch.Client
	ledgers []ledger

	updates, acquired atomic.Int64
	// restarts are those of nodes, and met is how many locks were held when they came.
	restarts, met atomic.Int64

	mu sync.Mutex // guards acknowledged
	// acknowledged are the updates that the workers of each ledger believe to
	// have made.
	acknowledged [][]int64
}

const (
	officeTTL     = time.Second
	officeLedgers = 24
	officeClients = 4
)

func newOffice(t *testing.T, urls []string, quarantine bool) *office {
	c := locktest.Config(urls...)
	c.TTL, c.MaxTTL, c.NoQuarantine, c.NodeTimeout = officeTTL, officeTTL, !quarantine, 250*time.Millisecond
	o := &office{ledgers: make([]ledger, officeLedgers), acknowledged: make([][]int64, officeLedgers)}
	for range officeClients {
		o.clients = append(o.clients, locktest.Open(t, c))
	}
	if quarantine {
		locktest.Vouch(t, o.clients[0], c.Nodes...)
	}
	return o
}

// work updates a ledger under its lock until ctx is done. Who waits is not
// queued: the more tries there are, the more often one meets a node that forgot.
func (o *office) work(ctx context.Context, t *testing.T, client *redlatch.Client, i int) {
	for ctx.Err() == nil {
		lock, err := client.Lock(ctx, fmt.Sprint("ledger/", i), redlatch.WithoutRenewal(), redlatch.WithoutQueue())
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err) // no lock is waited for that waiting does not bring
			}
			return
		}
		o.acquired.Add(1)
		read := o.ledgers[i].read()
		select { // the work
		case <-time.After(50*time.Millisecond + rand.N(800*time.Millisecond)):
		case <-lock.Context().Done():
		}
		update := o.updates.Add(1)
		if o.ledgers[i].write(append(read, update), lock.Err) == nil {
			o.mu.Lock()
			o.acknowledged[i] = append(o.acknowledged[i], update)
			o.mu.Unlock()
		}
		lock.Unlock(ctx)
	}
}

// count returns how many updates were acknowledged and how many of these their
// ledgers do not contain.
func (o *office) count() (acknowledged, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, updates := range o.acknowledged {
		acknowledged += len(updates)
		written := o.ledgers[i].read()
		for _, update := range updates {
			if !slices.Contains(written, update) {
				lost++
			}
		}
	}
	return acknowledged, lost
}

// held is how many locks are held now.
func (o *office) held() (n int) {
	for _, client := range o.clients {
		n += client.Stats().Held
	}
	return n
}

// enough reports whether so much has happened that the result proves something: without the
// quarantine, that updates were lost.
func (o *office) enough(quarantine bool) bool {
	acknowledged, lost := o.count()
	return acknowledged >= 2*officeLedgers && o.restarts.Load() >= 3 && o.met.Load() >= officeLedgers &&
		(quarantine || lost > 0)
}

// disaster is nodes that restart empty, so many at a time and no more often than
// each pause. It waits while no quorum votes, which only the quarantine can cause: the
// next disaster is then due after a few acquisitions.
type disaster struct {
	nodes int
	pause time.Duration
}

func (d disaster) strike(ctx context.Context, t *testing.T, o *office, servers []*redistest.Server, luck *rand.Rand) {
	const few = 5
	tick := time.NewTicker(d.pause)
	defer tick.Stop()
	for due := o.acquired.Load() + few; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if o.acquired.Load() < due {
			continue
		}
		o.met.Add(int64(o.held()))
		var all sync.WaitGroup
		for _, i := range luck.Perm(len(servers))[:d.nodes] {
			o.restarts.Add(1)
			all.Go(func() {
				servers[i].Kill()
				if err := servers[i].Restart(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		due = o.acquired.Load() + few
	}
}

// The measure of the quarantine: five nodes that keep nothing, restarted one
// each 300 ms or three each second, and workers that read, change and write
// ledgers that nothing but the lock protects. Without the quarantine acknowledged
// updates are lost; with it none is.
func TestForgetfulNodesLoseNoUpdate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 22 s, and more on a busy machine")
	}
	disasters := map[string]disaster{
		"one each 300 ms":   {nodes: 1, pause: 300 * time.Millisecond},
		"three each second": {nodes: 3, pause: time.Second},
	}
	for name, d := range disasters {
		for _, quarantine := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/quarantine=%t", name, quarantine), func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				servers := redistest.Nodes(t, 5)
				o := newOffice(t, redistest.URLs(servers), quarantine)
				ctx, cancel := context.WithCancelCause(t.Context())
				var workers sync.WaitGroup
				for i := range officeLedgers {
					for k := range 2 {
						client := o.clients[(i+k)%officeClients]
						workers.Go(func() { o.work(ctx, t, client, i) })
					}
				}
				workers.Go(func() { d.strike(ctx, t, o, servers, rand.New(rand.NewPCG(seed, 0))) })
				start := time.Now()
				for ; time.Since(start) < 22*time.Second || !o.enough(quarantine) && time.Since(start) < 10*time.Minute; storm.Rest(ctx, 100*time.Millisecond) {
				}
				cancel(errors.New("the run is over"))
				workers.Wait()

				acknowledged, lost := o.count()
				t.Logf("seed %d: %d restarts met %d held locks; %d acquisitions, %d updates acknowledged, %d of them lost (%.1f %%)",
					seed, o.restarts.Load(), o.met.Load(), o.acquired.Load(), acknowledged, lost, 100*float64(lost)/float64(max(1, acknowledged)))
				if !o.enough(quarantine) {
					t.Errorf("too little happened to prove anything; without the quarantine, updates are lost")
				}
				if quarantine && lost > 0 {
					t.Errorf("%d acknowledged updates were lost", lost)
				}
			})
		}
	}
}

// uncounted are ways in which a server loses all its keys and no statistics tell.
var uncounted = map[string]func(t *testing.T, s *redistest.Server){
	"deleted one by one":             deleteAll,
	"swapped with an empty database": func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, "SWAPDB", "0", "1") },
}

// deleteAll deletes all keys one by one.
func deleteAll(t *testing.T, s *redistest.Server) {
	t.Helper()
	for _, key := range locktest.Do(t, s, "KEYS", "*").([]any) {
		locktest.Do(t, s, "DEL", key.(string))
	}
}

// A server has dropped the voting script, as some do to make room for those of others, or by order, when the deployment's keys go by
// commands that do not count. Nothing else tells then that it has voted: it is not taken for one that was never used.
func TestKeysDeletedAfterScriptsWereDropped(t *testing.T) {
	t.Parallel()
	dropped := map[string]func(t *testing.T, s *redistest.Server){
		"evicted": func(t *testing.T, s *redistest.Server) {
			for i := range 600 {
				locktest.Do(t, s, "EVAL", fmt.Sprintf("return %d", i), "0")
			}
		},
		"flushed": func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, "SCRIPT", "FLUSH") },
	}
	for scripts, drop := range dropped {
		for keys, lose := range uncounted {
			t.Run("scripts "+scripts+", keys "+keys, func(t *testing.T) {
				t.Parallel()
				locktest.EachFlavor(t, func(t *testing.T, binary string) {
					server := redistest.New(t, redistest.Options{Binary: binary})
					const ttl = 8 * time.Second
					config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), ttl)
					client := locktest.Open(t, config)
					awaitUptime(t, server, ttl+4*time.Second)
					held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
					drop(t, server)
					lose(t, server)
					lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
					locktest.IsKeptOut(t, held, lock, err)
				})
			})
		}
	}
}

// A database of a server that a deployment has used in another one looks as if its keys were deleted. The reason says that, too.
func TestFurtherDatabase(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, redistest.Options{})
	config := locktest.WithQuarantine(s.URL())
	used := locktest.Open(t, config)
	locktest.Vouch(t, used, "n0")
	locktest.TryLock(t, used, "x")
	client := locktest.Open(t, locktest.Through(config, s.URL()+"/1"))
	for range 2 { // as the wait begins, and during it
		if _, err := locktest.AwaitAnswer(t, client, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "database") {
			t.Errorf("%v, want ErrNotAdmitted and the database", err)
		}
	}
}

// All nodes forget everything, their records too: there is only their clients' word for how long locks lasted. The page with what there is
// only a word for says so, of one node and of a majority.
func TestRecordIsForgottenEverywhere(t *testing.T) {
	t.Parallel()
	_, risks, _ := strings.Cut(restartsPage(t), "## What there is only your word for")
	for said, n := range map[string]int{"| One node alone forgot everything": 1, "| A majority of the nodes forgot everything": 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, n)
			config := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(nodes)...), locktest.TTL)
			client := locktest.Open(t, config)
			locktest.Vouch(t, client, config.Nodes...)
			held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
			for _, s := range nodes {
				locktest.KillAndRestart(t, s)
			}
			short := locktest.Open(t, locktest.WithMaxTTL(config, locktest.RestartTTL))
			_, err := short.Lock(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), "x")
			if err == nil && held.Err() == nil && !strings.Contains(risks, said) {
				t.Error("a second holder, and docs/restarts.md does not say that it is possible")
			}
			if _, err := locktest.TryInTime(t, client, "y"); !isDisagreement(err, "MaxTTL 1m0s", "MaxTTL 1s") {
				t.Errorf("the settings of before: %v", err)
			}
		})
	}
}

// Two deployments use the same names, but not the same nodes or not the same MaxTTL. The page with what there is only a word for says
// what that costs.
func TestTwoDeploymentsThatDiffer(t *testing.T) {
	t.Parallel()
	_, risks, _ := strings.Cut(restartsPage(t), "## What there is only your word for")
	for said, differ := range map[string]func(c redlatch.Config, another string) redlatch.Config{
		"with different nodes:": func(c redlatch.Config, another string) redlatch.Config { return locktest.Through(c, another) },
		"with different `MaxTTL`:": func(c redlatch.Config, _ string) redlatch.Config {
			return locktest.WithMaxTTL(c, locktest.RestartTTL)
		},
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, 2)
			one := locktest.WithMaxTTL(locktest.WithQuarantine(nodes[0].URL()), locktest.TTL)
			two := differ(one, nodes[1].URL())
			two.Deployment += "-two"
			first, second := locktest.Open(t, one), locktest.Open(t, two)
			locktest.Vouch(t, first, "n0")
			locktest.Vouch(t, second, "n0")
			held := locktest.TryLock(t, first, "x", redlatch.WithoutRenewal())
			locktest.KillAndRestart(t, nodes[0])
			_, err := second.Lock(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), "x")
			if err == nil && held.Err() == nil && !strings.Contains(risks, "| Two deployments use the same names "+said) {
				t.Error("a second holder, and docs/restarts.md does not say that it is possible")
			}
		})
	}
}
