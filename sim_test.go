//go:build sim

package redlatch_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/sim"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "TestSim: run this one world and print its history")
	simFor   = flag.Duration("sim.for", simDuration(), "TestSim: go on with new worlds for so long (also REDLATCH_SIM)")
	simFirst = flag.Uint64("sim.first", 1, "TestSim: the first seed")
	simSky   = flag.String("sim.weather", "", "TestSim: calm, lossy, servers, processes, clocks, tight, storm or outlaw, not drawn")
	simFail  = flag.Int("sim.fail", 10, "TestSim: stop when so many worlds have failed")
	simCount = flag.Int("sim.count", 2000, "TestSim: the least number of worlds")
)

func simDuration() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("REDLATCH_SIM"))
	return d
}

// outcome is what one simulated world came to.
type outcome struct {
	verdicts   []string
	history    string
	simulated  time.Duration
	held       int
	executions int
	faults     int
	digest     uint64
}

// simulate lets one world live and end.
func simulate(t *testing.T, seed uint64, m sim.Mutation, detailed bool) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(seed, m)
		town := &simTown{world: w, plan: sim.NewPlan(w, *simSky)}
		town.live()
		w.End()
		o.verdicts = w.Judge.Verdicts()
		o.simulated, o.held, o.executions, o.faults = w.Now(), w.Judge.Held(), w.Executions(), town.plan.Faults()
		o.digest = w.History.Digest()
		if detailed || len(o.verdicts) > 0 {
			var b strings.Builder
			fmt.Fprintf(&b, "world %d: %s\n", seed, town.plan)
			w.History.Print(&b)
			o.history = b.String()
		}
	})
	return o
}

// keep writes the history to a file and returns its name: what coincides in a
// world is not always decided in the same way, so that it may be the only one.
func (o outcome) keep(t *testing.T, seed uint64) string {
	file, err := os.CreateTemp("", fmt.Sprintf("redlatch-sim-%d-*.txt", seed))
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if _, err := file.WriteString(o.history); err != nil {
		return err.Error()
	}
	return file.Name()
}

// TestSim runs the real client through simulated worlds, each under a seed, in
// virtual time.
//
//	go test -run TestSim -sim.seed=N .     replays one world and prints its history
//	go test -run TestSim -sim.for=10m .    goes on for so long
func TestSim(t *testing.T) {
	if *simSeed != 0 {
		o := simulate(t, *simSeed, sim.None, true)
		t.Logf("%s", o.history)
		for _, v := range o.verdicts {
			t.Errorf("seed %d: %s", *simSeed, v)
		}
		return
	}
	var (
		next   atomic.Uint64
		mu     sync.Mutex // guards total and failed
		total  outcome
		worlds int
		failed int
	)
	next.Store(*simFirst - 1)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // little lives for longer than its world
	start := time.Now()
	t.Run("worlds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("lane", func(t *testing.T) {
				t.Parallel()
				for {
					seed := next.Add(1)
					if seed >= *simFirst+uint64(*simCount) && time.Since(start) >= *simFor {
						return
					}
					o := simulate(t, seed, sim.None, false)
					mu.Lock()
					worlds++
					total.simulated += o.simulated
					total.held += o.held
					total.executions += o.executions
					total.faults += o.faults
					if len(o.verdicts) > 0 {
						failed++
						t.Errorf("seed %d: %s\n\tits history: %s\n\treplay: go test -run 'TestSim$' -sim.seed=%d -count=20 -failfast .",
							seed, strings.Join(o.verdicts, "\n\t"), o.keep(t, seed), seed)
					}
					stop := failed >= *simFail
					mu.Unlock()
					if stop {
						return
					}
				}
			})
		}
	})
	took := time.Since(start)
	t.Logf("%d worlds, %.1f simulated hours, %d acquisitions, %d scripts, %d faults in %v",
		worlds, total.simulated.Hours(), total.held, total.executions, total.faults, took.Round(time.Millisecond))
}

// A seed is of use only if it leads to the same world again.
func TestSimReplays(t *testing.T) {
	const seeds = 200
	same := 0
	for seed := range uint64(seeds) {
		first, second := simulate(t, seed+1, sim.None, false), simulate(t, seed+1, sim.None, false)
		if first.digest == second.digest {
			same++
		} else {
			t.Logf("seed %d: %d and %d acquisitions", seed+1, first.held, second.held)
		}
	}
	t.Logf("%d of %d worlds were the same twice", same, seeds)
}
