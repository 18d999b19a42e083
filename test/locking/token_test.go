package locking

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// openAt opens a client on a machine whose wall clock is off.
func openAt(t *testing.T, servers []*redistest.Server, offset time.Duration) *redlatch.Client {
	t.Helper()
	return locktest.OpenAt(t, redlatch.Config{Nodes: redistest.URLs(servers), TTL: locktest.RestartTTL, MaxTTL: locktest.RestartTTL, NodeTimeout: 250 * time.Millisecond}, offset)
}

// register is a resource that only watches: the largest token that anybody has
// held a name under.
type register struct {
	mu      sync.Mutex // guards what follows
	largest map[string]uint64
	holders int
}

func (r *register) now(name string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.largest[name]
}

// hold reports whether a holder that began after before had been held under has
// a larger token, as it must.
func (r *register) hold(name string, before, token uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders++
	r.largest[name] = max(r.largest[name], token)
	return token > before
}

// tokenHolders is how many successive holders each case has. The long run is
// REDLATCH_TOKENS=100000 go test -run TestTokensIncrease -timeout 1h .
func tokenHolders(t *testing.T) int {
	if text := os.Getenv("REDLATCH_TOKENS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 2000
}

// Many holders in turn, from machines whose clocks are minutes and decades
// apart: each token is larger than all that were held under before its lock was
// asked for.
func TestTokensIncrease(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for _, faults := range []bool{false, true} {
			t.Run(fmt.Sprintf("nodes=%d/faults=%t", n, faults), func(t *testing.T) {
				servers := redistest.Nodes(t, n, redistest.Options{ClockShim: true})
				vouchForAll(t, servers)
				runTokens(t, servers, faults)
			})
		}
	}
}

func vouchForAll(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	client := openAt(t, servers, 0)
	for _, server := range servers {
		if err := client.Admit(t.Context(), server.URL()); err != nil {
			t.Fatal(err)
		}
	}
}

func runTokens(t *testing.T, servers []*redistest.Server, faults bool) {
	holders := tokenHolders(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()

	// The last two machines' clocks would push the counters decades ahead and
	// leave them there, but for the clamp.
	offsets := []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 70 * 365 * 24 * time.Hour, -50 * 365 * 24 * time.Hour}
	if !faults {
		offsets = []time.Duration{0, 0, 0, 0, 0}
	}
	watch := &register{largest: make(map[string]uint64)}
	var workers sync.WaitGroup
	clients := make([]*redlatch.Client, len(offsets))
	var struck atomic.Int32
	for i, offset := range offsets {
		clients[i] = openAt(t, servers, offset)
		names := rand.New(rand.NewPCG(seed, uint64(i)))
		workers.Go(func() {
			for done := false; !done && ctx.Err() == nil; {
				name := fmt.Sprintf("name-%d", names.IntN(8))
				before := watch.now(name)
				lock, err := clients[i].Lock(ctx, name)
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				if !watch.hold(name, before, lock.Token()) {
					t.Errorf("%s was held under %d, then under %d", name, before, lock.Token())
				}
				lock.Unlock(ctx)
				watch.mu.Lock()
				done = watch.holders >= holders && (!faults || struck.Load() > 0)
				watch.mu.Unlock()
			}
		})
	}
	finished := make(chan struct{})
	go func() { workers.Wait(); close(finished) }()
	if faults {
		strike(t, servers, rand.New(rand.NewPCG(seed, 99)), finished, &struck)
	}
	<-finished

	var second, acquired uint64
	for _, client := range clients {
		second += client.Stats().SecondRounds
		acquired += client.Stats().Acquired
	}
	t.Logf("%d holders, %d faults, %d second rounds", acquired, struck.Load(), second)
}

// strike has one node at a time restart empty, hang, or have its clock stepped
// by up to a second, until finished.
func strike(t *testing.T, servers []*redistest.Server, chance *rand.Rand, finished <-chan struct{}, struck *atomic.Int32) {
	offsets := make([]time.Duration, len(servers))
	var killed time.Time
	for {
		select {
		case <-finished:
			return
		case <-time.After(time.Duration(20+chance.IntN(200)) * time.Millisecond):
		}
		i := chance.IntN(len(servers))
		server := servers[i]
		struck.Add(1)
		switch fault := chance.IntN(6); {
		case fault == 0 && time.Since(killed) > 2*locktest.RestartQuarantine:
			// One at a time, so that a quorum of several nodes stays admitted.
			killed = time.Now()
			server.Kill()
			if err := server.RestartEmpty(t.Context()); err != nil {
				t.Error(err)
				return
			}
		case fault < 3:
			if err := server.Pause(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(chance.IntN(100)) * time.Millisecond)
			if err := server.Resume(); err != nil {
				t.Error(err)
			}
		default:
			// Within ± 1 s of the truth: what the quarantine allows for.
			offset := time.Duration(chance.Int64N(int64(2*time.Second))) - time.Second
			if err := server.StepClock(offset - offsets[i]); err != nil {
				t.Error(err)
			}
			offsets[i] = offset
		}
	}
}
