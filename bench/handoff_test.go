package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
)

// BenchmarkHandOff is how long after the call that releases a lock the one who
// waits for it in another client has it, and how many round trips that is: PINGs
// of the same iteration, over a connection set up as redlatch's are, that was as
// idle before.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) { handOffs(b, n) })
	}
}

// idle is the time before each measurement. Nobody tells when a client waits: so
// many round trips later it does.
const idle = 10 * time.Millisecond

// handOffsEach is how often in an iteration each contestant hands over.
const handOffsEach = 20

func handOffs(b *testing.B, n int) {
	on := servers(b, n)
	pings := openPings(b, on)
	var all []*rivals
	var name []string
	bare := rivalContestant{contestant: contestant{name: "scripts", nodes: 1, open: openCalling}}
	for _, who := range append(rivalContestants, bare) {
		if who.nodes < n {
			continue
		}
		c := openRivals(b, who, 2, on)
		all, name = append(all, c), append(name, "handoff/"+b.Name()+"/"+c.name)
		var err error
		for range 5 { // fills script caches; a busy machine's may fail
			if _, err = c.handOff(name[len(name)-1], idle); err == nil {
				break
			}
		}
		if err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
	}
	var trips, quorums []time.Duration
	took, failed := make([][]time.Duration, len(all)), make([]int, len(all))
	for turn := 0; b.Loop(); {
		for range handOffsEach {
			time.Sleep(idle)
			trips = append(trips, pings.one())
			time.Sleep(idle)
			quorums = append(quorums, pings.quorum())
			// One each, so that all have the same moments.
			for i := range all {
				k := (i + turn) % len(all)
				d, err := all[k].handOff(name[k], idle)
				if err != nil { // it counts with its length
					b.Logf("%s: %v", all[k].name, err)
					failed[k]++
				}
				took[k] = append(took[k], d)
			}
			turn++
		}
	}
	b.ReportMetric(0, "ns/op")
	if failed[0] > len(took[0])/4 { // more than a busy machine's
		b.Fatalf("%d of %d hand-offs of %s failed", failed[0], len(took[0]), all[0].name)
	}

	recordHandOffs(b, "PING of one node", trips, trips)
	recordHandOffs(b, "PING of a quorum", quorums, trips)
	for k, c := range all {
		recordHandOffs(b, c.name, took[k], trips)
	}
	trip, quorum := quantileOf(trips, .5), quantileOf(quorums, .5)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%d nodes, hand-off to one waiter\tmedian µs\tp99 µs\tround trips\tx redlatch\t\n", n)
	fmt.Fprintf(w, "PING of one node\t%.0f\t%.0f\t1.0\t\t\n", micro(trip), micro(quantileOf(trips, .99)))
	if n > 1 {
		fmt.Fprintf(w, "PING of a quorum\t%.0f\t%.0f\t%.1f\t\t\n", micro(quorum), micro(quantileOf(quorums, .99)), micro(quorum)/micro(trip))
	}
	for k, c := range all {
		median := quantileOf(took[k], .5)
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.1f\t%.2f\t\n", c.name, micro(median), micro(quantileOf(took[k], .99)), micro(median)/micro(trip), micro(median)/micro(quantileOf(took[0], .5)))
	}
	w.Flush()
	b.ReportMetric(micro(quantileOf(took[0], .5))/micro(trip), "round-trips")
	b.ReportMetric(micro(quantileOf(took[0], .5))/micro(quorum), "quorum-round-trips")
	for k := 1; k < len(all); k++ {
		b.ReportMetric(micro(quantileOf(took[0], .5))/micro(quantileOf(took[k], .5)), "x-"+all[k].name+"-median")
	}
}

// recordHandOffs notes the medians of an iteration's hand-offs, in the order in which they were.
func recordHandOffs(b *testing.B, row string, took, trips []time.Duration) {
	b.Helper()
	var medians, ratios []float64
	trip := slices.Collect(slices.Chunk(trips, handOffsEach))
	for i, each := range slices.Collect(slices.Chunk(took, handOffsEach)) {
		median := micro(quantileOf(slices.Clone(each), .5))
		medians, ratios = append(medians, median), append(ratios, median/micro(quantileOf(slices.Clone(trip[i]), .5)))
	}
	record(b, row, "median µs", medians)
	record(b, row, "round trips", ratios)
}

// quantileOf sorts the durations.
func quantileOf(of []time.Duration, q float64) time.Duration {
	slices.Sort(of)
	return of[int(q*float64(len(of)-1))]
}

// handOff returns how long after the first client's call of unlock the second
// has the lock that it waits for, for as long as settled.
func (c *rivals) handOff(name string, settled time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	unlock, err := c.clients[0].lock(ctx, name)
	if err != nil {
		return 0, err
	}
	had := make(chan time.Time, 1)
	var waiting sync.WaitGroup
	var failed error
	waiting.Go(func() {
		unlock, err := c.clients[1].lock(ctx, name)
		had <- time.Now()
		if err == nil {
			err = unlock(ctx)
		}
		failed = err
	})
	time.Sleep(settled)
	released := time.Now()
	err = unlock(ctx)
	waiting.Wait()
	if err == nil {
		err = failed
	}
	return (<-had).Sub(released), err
}

// pings are connections to all nodes.
type pings []rueidis.Client

func openPings(b *testing.B, on []*redistest.Server) pings {
	b.Helper()
	p := make(pings, len(on))
	for i, s := range on {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr()}, PipelineMultiplex: -1, AlwaysPipelining: true, ForceSingleClient: true,
			DisableRetry: true, DisableCache: true,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(client.Close)
		p[i] = client
	}
	return p
}

// one is the time of a round trip to one node.
func (p pings) one() time.Duration {
	start := time.Now()
	p[0].Do(context.Background(), p[0].B().Ping().Build())
	return time.Since(start)
}

// quorum is the time in which a quorum of nodes answers.
func (p pings) quorum() time.Duration {
	answers := make(chan struct{}, len(p))
	start := time.Now()
	for _, client := range p {
		go func() {
			client.Do(context.Background(), client.B().Ping().Build())
			answers <- struct{}{}
		}()
	}
	for range len(p)/2 + 1 {
		<-answers
	}
	took := time.Since(start)
	for range len(p) - (len(p)/2 + 1) {
		<-answers
	}
	return took
}
