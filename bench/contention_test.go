package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// waiter is a locker that waits for what another has.
type waiter interface {
	locker
	// lock returns when name is locked.
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
}

// rivalContestants are those who can wait, the ones that the others are compared
// with first, each with the commands that it sends itself: the others that servers
// count are its scripts'.
var rivalContestants = []rivalContestant{
	{contestant{name: "redlatch", nodes: 5, open: openRedlatch(false)}, []string{"evalsha", "eval"}},
	{contestant{name: "redsync", nodes: 5, open: openRedsync}, []string{"set", "setnx", "evalsha", "eval"}},
	{contestant{name: "redislock", nodes: 1, open: openRedislockWaiting}, []string{"evalsha", "eval"}},
	{contestant{name: "rueidislock", nodes: 1, open: openRueidislock}, []string{"evalsha", "eval", "set", "client|caching", "get", "del"}},
}

type rivalContestant struct {
	contestant
	sent []string
}

// rivals are separate clients of one contestant that want one lock.
type rivals struct {
	name    string
	sent    []string
	clients []waiter
	rounds  []*outcome
}

// openRivals connects n clients.
func openRivals(b *testing.B, who rivalContestant, n int, on []*redistest.Server) *rivals {
	b.Helper()
	c := &rivals{name: who.name, sent: who.sent}
	for range n {
		l, err := who.open(addresses(on))
		if err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
		b.Cleanup(l.close)
		c.clients = append(c.clients, l.(waiter))
	}
	return c
}

// outcome is what rivals did in one round.
type outcome struct {
	locks    int // within the time that is measured
	handOffs int // of these, those that another caller had before
	each     []int
	wall     time.Duration
	commands int
	waits    []time.Duration // of those begun within the time that is measured
	failed   int
	err      error   // of one that failed
	stolen   float64 // %
}

// play has each of the callers of each client lock and unlock name over and over.
// What counts is the time after the pile-up in which all of them came at once. A
// wait that began in that time counts to its end.
func (c *rivals) play(on []*redistest.Server, callers int, name string, d time.Duration) (*outcome, error) {
	runtime.GC()
	began := readTicks()
	j := &outcome{each: make([]int, len(c.clients)*callers)}
	var mu sync.Mutex // guards j and from and to while the clients run
	var from, to time.Time
	var last atomic.Int64 // who has it or had it last
	var group sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), 2*d+2*patience)
	defer cancel()
	done := make(chan struct{})
	for i := range j.each {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				began := time.Now()
				unlock, err := c.clients[i/callers].lock(ctx, name)
				had := time.Now()
				handedOff := false
				if err == nil {
					handedOff = last.Swap(int64(i)) != int64(i)
					err = unlock(ctx)
				}
				mu.Lock()
				if err != nil && !from.IsZero() {
					j.failed, j.err = j.failed+1, err
				}
				if !from.IsZero() && !began.Before(from) && (to.IsZero() || began.Before(to)) {
					j.waits = append(j.waits, had.Sub(began))
				}
				if err == nil && !from.IsZero() && to.IsZero() {
					j.locks++
					j.each[i]++
					if handedOff {
						j.handOffs++
					}
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(d / 4)
	mu.Lock()
	from = time.Now()
	mu.Unlock()
	before, err := workOf(on)
	if err == nil {
		time.Sleep(d)
	}
	mu.Lock()
	to = time.Now()
	j.wall = to.Sub(from)
	mu.Unlock()
	after, err2 := workOf(on)
	close(done)
	group.Wait()
	if err != nil || err2 != nil {
		return nil, fmt.Errorf("%w, %w", err, err2)
	}
	for _, command := range c.sent {
		j.commands += after.calls[command] - before.calls[command]
	}
	j.stolen = stolenSince(began)
	slices.Sort(j.waits)
	if j.handOffs == 0 {
		return nil, fmt.Errorf("%s: %d locks and no hand-off: %w", c.name, j.locks, j.err)
	}
	return j, nil
}

// played is what they did in eight slices, and in more where a busy machine's had no hand-off in them.
func (c *rivals) played(on []*redistest.Server, callers int, name string) (*outcome, error) {
	j, err := c.play(on, callers, name, 8*sliceLength())
	for d := 16 * sliceLength(); err != nil && d < 200*sliceLength(); d *= 2 {
		j, err = c.play(on, callers, name, d)
	}
	return j, err
}

func (j *outcome) rate() float64 { return float64(j.locks) / j.wall.Seconds() }

func (j *outcome) handOffRate() float64 { return float64(j.handOffs) / j.wall.Seconds() }

func (j *outcome) perLock() float64 { return float64(j.commands) / float64(j.locks) }

func (j *outcome) quantile(q float64) time.Duration {
	if len(j.waits) == 0 {
		return j.wall // nobody who came meanwhile has had it
	}
	return j.waits[int(q*float64(len(j.waits)-1))]
}

// fairness is Jain's index of the callers' shares: 1 when all have the same, 1/n
// when one has all (Jain, Chiu and Hawe, 1984).
func (j *outcome) fairness() float64 {
	var sum, squares float64
	for _, n := range j.each {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(j.each)) * squares)
}

// BenchmarkContention has separate clients contend for one name, or the callers of one
// client, a contestant at a time, and prints a table of medians over the rounds.
func BenchmarkContention(b *testing.B) {
	for _, shape := range []struct{ nodes, clients, callers int }{
		{1, 4, 1}, {1, 16, 1}, {1, 64, 1}, {1, 1, 128},
		{5, 4, 1}, {5, 16, 1}, {5, 64, 1}, {5, 1, 128},
	} {
		b.Run(fmt.Sprintf("nodes=%d/clients=%d/callers=%d", shape.nodes, shape.clients, shape.callers), func(b *testing.B) {
			on := servers(b, shape.nodes)
			var all []*rivals
			for _, who := range rivalContestants {
				if who.nodes >= shape.nodes {
					all = append(all, openRivals(b, who, shape.clients, on))
				}
			}
			rounds := 0
			for ; b.Loop(); rounds++ {
				played := make([]*outcome, len(all))
				for i := range all {
					k := (i + rounds) % len(all)
					c := all[k]
					j, err := c.played(on, shape.callers, "contention/"+b.Name()+"/"+c.name)
					if err != nil {
						b.Fatal(err)
					}
					played[k] = j
				}
				if slices.ContainsFunc(played, func(j *outcome) bool { return j.stolen > *quiet }) {
					continue
				}
				for k, j := range played {
					all[k].rounds = append(all[k].rounds, j)
				}
			}
			b.ReportMetric(0, "ns/op") // a round is as long as it was made
			counted := len(all[0].rounds)
			if counted == 0 {
				b.Skipf("none of %d rounds was quiet", rounds)
			}
			writeContention(os.Stdout, fmt.Sprintf("%d nodes, %d clients, %d callers each, %d of %d rounds",
				shape.nodes, shape.clients, shape.callers, counted, rounds), all)
			recordContention(b, all)
			for _, other := range all[1:] {
				b.ReportMetric(all[0].against(other, xLocks), "x-"+other.name+"-rate")
				b.ReportMetric(all[0].against(other, xHandOffs), "x-"+other.name+"-handoffs")
				b.ReportMetric(all[0].against(other, xP99), "x-"+other.name+"-p99-wait")
			}
			b.ReportMetric(all[0].median((*outcome).fairness), "fairness")
			b.ReportMetric(all[0].median((*outcome).perLock), "commands/lock")
		})
	}
}
