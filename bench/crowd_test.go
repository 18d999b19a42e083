package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// crowd is separate clients that want one lock, in one round.
type crowd struct {
	pairs    int
	failed   int
	wall     time.Duration
	waits    []time.Duration // sorted
	each     []int           // pairs of each client
	commands int             // that the clients sent
	err      error
}

// gather has each client lock and unlock name for d.
func gather(on []*redistest.Server, clients []locker, callers int, name string, sent []string, d time.Duration) (*crowd, error) {
	before, err := workOf(on)
	if err != nil {
		return nil, err
	}
	c := &crowd{each: make([]int, len(clients)*callers)}
	var mu sync.Mutex // guards c while the clients run
	var group sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), d+patience)
	defer cancel()
	start := time.Now()
	for i := range c.each {
		group.Go(func() {
			var waits []time.Duration
			for began := start; began.Sub(start) < d; began = time.Now() {
				if err := clients[i/callers].pair(ctx, name); err != nil {
					if ctx.Err() == nil {
						mu.Lock()
						c.failed, c.err = c.failed+1, err
						mu.Unlock()
					}
					continue
				}
				waits = append(waits, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			c.waits = append(c.waits, waits...)
			c.each[i] = len(waits)
			c.pairs += len(waits)
		})
	}
	group.Wait()
	c.wall = time.Since(start)
	after, err := workOf(on)
	if err != nil {
		return nil, err
	}
	for _, command := range sent {
		c.commands += after.calls[command] - before.calls[command]
	}
	slices.Sort(c.waits)
	return c, nil
}

func (c *crowd) rate() float64 { return float64(c.pairs) / c.wall.Seconds() }

func (c *crowd) quantile(q float64) time.Duration {
	if len(c.waits) == 0 {
		return 0
	}
	return c.waits[int(q*float64(len(c.waits)-1))]
}

// fairness is Jain's index of the clients' shares: 1 when all have the same, 1/n
// when one has all (Jain, Chiu and Hawe, 1984).
func (c *crowd) fairness() float64 {
	var sum, squares float64
	for _, n := range c.each {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(c.each)) * squares)
}

func (c *crowd) String() string {
	return fmt.Sprintf("%8.0f/s  p50 %-10v p99 %-10v p99.9 %-10v %6.1f commands  fairness %.3f  least %d most %d  failed %d %v",
		c.rate(), c.quantile(.5).Round(time.Microsecond), c.quantile(.99).Round(time.Microsecond), c.quantile(.999).Round(time.Microsecond),
		float64(c.commands)/float64(max(c.pairs, 1)), c.fairness(), slices.Min(c.each), slices.Max(c.each), c.failed, c.err)
}

// crowdContestants are those who can wait, each with the commands that it sends
// itself: the others that servers count are its scripts'.
var crowdContestants = []struct {
	contestant
	sent []string
}{
	{contestant{name: "redlatch", nodes: 5, open: openRedlatch(redlatch.FenceOff)}, []string{"evalsha", "eval"}},
	{contestant{name: "redsync", nodes: 5, open: openRedsync}, []string{"set", "setnx", "evalsha", "eval"}},
	{contestant{name: "redislock", nodes: 1, open: openRedislockWaiting}, []string{"evalsha", "eval"}},
	{contestant{name: "rueidislock", nodes: 1, open: openRueidislock}, []string{"evalsha", "eval"}},
}

// BenchmarkCrowd has separate clients contend for one name.
func BenchmarkCrowd(b *testing.B) {
	for _, n := range []int{1, 5} {
		for _, shape := range []struct{ clients, callers int }{{4, 1}, {16, 1}, {64, 1}, {1, 128}} {
			b.Run(fmt.Sprintf("nodes=%d/clients=%d/callers=%d", n, shape.clients, shape.callers), func(b *testing.B) {
				on := servers(b, n)
				for b.Loop() {
					for _, who := range crowdContestants {
						if who.nodes < n {
							continue
						}
						clients := make([]locker, shape.clients)
						for i := range clients {
							l, err := who.open(addresses(on))
							if err != nil {
								b.Fatal(err)
							}
							clients[i] = l
						}
						c, err := gather(on, clients, shape.callers, "crowd/"+b.Name()+"/"+who.name, who.sent, 8*sliceLength())
						if err != nil {
							b.Fatal(err)
						}
						b.Logf("%-12s %v", who.name, c)
						for _, l := range clients {
							l.close()
						}
					}
				}
			})
		}
	}
}
