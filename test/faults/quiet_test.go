package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/storm"
)

// Clients lock and unlock, wait, give up and extend, in every way there is, while connections are cut, replies
// lost, nodes partitioned and stopped. When all is quiet again nothing is left on any node, long before a TTL.
func TestNothingIsLeftWhenAllIsQuiet(t *testing.T) {
	t.Parallel()
	const clients, callers = 3, 3
	base := seed.Of(t)
	nodes := redistest.Nodes(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	c.NodeTimeout = 50 * time.Millisecond
	troubled, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i, s := range nodes {
		all.Go(func() { stopAndGo(t, troubled, s, rand.New(rand.NewPCG(base, uint64(i)))) })
	}
	acquired := make([]int, clients*callers)
	for i := range clients {
		proxies := redistest.Proxies(t, nodes)
		for k, p := range proxies {
			all.Go(func() { trouble(t, troubled, p, rand.New(rand.NewPCG(base, uint64(10+3*i+k)))) })
		}
		client := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
		for k := range callers {
			all.Go(func() {
				acquired[callers*i+k] = use(troubled, client, rand.New(rand.NewPCG(base, uint64(30+callers*i+k))))
			})
		}
	}
	all.Wait()
	t.Logf("acquired %v", acquired)
	for i, s := range nodes {
		took := locktest.Await(t, fmt.Sprintf("nothing is left on node %d", i), func() bool { return len(locksOn(t, s)) == 0 })
		t.Logf("node %d was clear after %v", i, took)
	}
}

// use acquires locks of all kinds, and returns how many it had.
func use(ctx context.Context, client *redlatch.Client, rng *rand.Rand) (acquired int) {
	kinds := [][]redlatch.Option{
		nil, nil, nil, {redlatch.WithAlso("quiet/a", "quiet/b")}, {redlatch.WithShared()}, {redlatch.WithPermits(2)},
	}
	for ctx.Err() == nil {
		name, kind := fmt.Sprintf("quiet/%d", rng.IntN(3)), kinds[rng.IntN(len(kinds))]
		lock := client.Lock
		if rng.IntN(2) == 0 {
			lock = client.TryLock
		}
		short, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
		l, err := lock(short, name, kind...)
		if err == nil {
			acquired++
			storm.Rest(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
			if rng.IntN(4) == 0 {
				_ = l.Extend(short, 0)
			}
			_ = l.Unlock(ctx) // in the background where nodes cannot be reached
		}
		cancel()
	}
	return acquired
}

// trouble makes a way to a node fail again and again until ctx ends; then it is well.
func trouble(t *testing.T, ctx context.Context, p *redistest.Proxy, rng *rand.Rand) {
	for ctx.Err() == nil {
		storm.Rest(ctx, time.Duration(rng.IntN(500))*time.Millisecond)
		way, span := redistest.Direction(1+rng.IntN(3)), time.Duration(rng.IntN(400))*time.Millisecond
		switch rng.IntN(5) {
		case 0:
			p.Cut()
		case 1:
			p.BlackHole(way, true)
			storm.Rest(ctx, span)
			p.BlackHole(way, false)
		case 2:
			p.HoldBack(way, true)
			storm.Rest(ctx, span)
			p.HoldBack(way, false)
		case 3:
			p.Delay(way, 20*time.Millisecond, 50*time.Millisecond)
			storm.Rest(ctx, span)
			p.Delay(way, 0, 0)
		case 4:
			if err := p.Refuse(true); err != nil {
				t.Error(err)
			}
			p.Cut()
			storm.Rest(ctx, span)
			if err := p.Refuse(false); err != nil {
				t.Error(err)
			}
		}
	}
}

// stopAndGo stops a server now and then, and lets it go on.
func stopAndGo(t *testing.T, ctx context.Context, s *redistest.Server, rng *rand.Rand) {
	for ctx.Err() == nil {
		storm.Rest(ctx, time.Duration(rng.IntN(1500))*time.Millisecond)
		if err := s.Pause(); err != nil {
			t.Error(err)
		}
		storm.Rest(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
		if err := s.Resume(); err != nil {
			t.Error(err)
		}
	}
}

// locksOn returns the keys of locks on a server: not counters, which stay, nor those of queues, which lapse.
func locksOn(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	var keys []string
	for _, key := range locktest.Do(t, s, "KEYS", "*quiet/*").([]any) {
		keys = append(keys, key.(string))
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		return slices.ContainsFunc([]string{"}:token:", "}:queue:", "}:heartbeats:", "}:next:"}, func(mark string) bool { return strings.Contains(key, mark) })
	})
}
