package sim_test

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
	simSeed   = flag.Uint64("sim.seed", 0, "TestSim: run this one world and print its history")
	simFor    = flag.Duration("sim.for", 0, "TestSim: go on with new worlds for so long")
	simFirst  = flag.Uint64("sim.first", 1, "TestSim: the first seed")
	simSky    = flag.String("sim.weather", "", "TestSim: calm, lossy, servers, processes, clocks, tight, torn, storm or outlaw or alone, not drawn")
	simFail   = flag.Int("sim.fail", 10, "TestSim: stop when so many worlds have failed")
	simBreak  = flag.String("sim.mutation", "none", "TestSim: with this rule broken, by its name in package sim")
	simStand  = flag.Bool("sim.anywhere", false, "TestSim: goroutines stand still at any statement, in a library that is built for it")
	simStalls = flag.Int("sim.stalls", 200, "TestSimStalls: the number of worlds")
	simCount  = flag.Int("sim.count", simWorlds, "TestSim: the least number of worlds")
)

// outcome is what one simulated world came to.
type outcome struct {
	verdicts  []string
	history   string
	simulated time.Duration
	held      int
	inTurn    int // of these, those that mostly hold by one attempt with the one before
	losses    int // and those that lost their quorum before their time ran out
	events    int // scripts executed, faults, calls and what they came to
	faults    int
	digest    uint64
}

// simulate lets one world live and end.
func simulate(t *testing.T, seed uint64, m sim.Mutation, detailed bool) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(seed, m)
		town := &simTown{world: w, plan: sim.NewPlan(w, *simSky)}
		if *simStand {
			defer w.Anywhere(town.plan)()
		}
		town.live()
		w.End()
		o.verdicts = w.Judge.Verdicts()
		o.simulated, o.held, o.events, o.faults = w.Now(), w.Judge.Held(), w.History.Count(), town.plan.Faults()
		o.inTurn, o.losses = w.Judge.InTurn(), w.Judge.Losses()
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
func (o outcome) keep(seed uint64) string {
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

// simRun is many worlds, and what they came to together.
type simRun struct {
	t     *testing.T
	start time.Time
	next  atomic.Uint64 // the seed to come
	// mutation breaks a rule, None of them as a rule.
	mutation sim.Mutation

	mu             sync.Mutex // guards what follows; nothing is called while it is held but what prints
	total          outcome
	worlds, failed int
	told           time.Time // when progress was last told
}

func (r *simRun) String() string {
	return fmt.Sprintf("%d worlds, %d failed, %.1f simulated hours, %d events, %d faults, %d acquisitions, %d in turn, %d lost, in %v",
		r.worlds, r.failed, r.total.simulated.Hours(), r.total.events, r.total.faults, r.total.held, r.total.inTurn, r.total.losses, time.Since(r.start).Round(time.Millisecond))
}

// lane runs one world after the other.
func (r *simRun) lane(t *testing.T) {
	for {
		seed := r.next.Add(1) - 1
		if seed >= *simFirst+uint64(*simCount) && time.Since(r.start) >= *simFor {
			return
		}
		if !r.add(t, seed, simulate(t, seed, r.mutation, false)) {
			return
		}
	}
}

// add takes in what a world came to, and reports whether to go on.
func (r *simRun) add(t *testing.T, seed uint64, o outcome) (goOn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.worlds++
	r.total.simulated += o.simulated
	r.total.held += o.held
	r.total.inTurn += o.inTurn
	r.total.losses += o.losses
	r.total.events += o.events
	r.total.faults += o.faults
	if len(o.verdicts) > 0 {
		r.failed++
		tell := t.Errorf
		if *simFor > 0 {
			// Somebody is looking, and a test's own words come at its end.
			tell = func(format string, args ...any) { fmt.Printf(format+"\n", args...); t.Fail() }
		}
		tell("seed %d: %s\n\tits history: %s\n\treplay: go test -run 'TestSim$' -sim.seed=%d -count=20 -failfast ./internal/sim",
			seed, strings.Join(o.verdicts, "\n\t"), o.keep(seed), seed)
	}
	if *simFor > 0 && time.Since(r.told) > 10*time.Second {
		r.told = time.Now()
		fmt.Println(r)
	}
	return r.failed < *simFail
}

// TestSim runs the real client through simulated worlds, each under a seed, in
// virtual time.
//
//	go test -run 'TestSim$' -v -sim.seed=N ./internal/sim    replays one world and prints its history
//	go test -run 'TestSim$' -v -sim.for=10m ./internal/sim   goes on for so long
func TestSim(t *testing.T) {
	mutation, ok := sim.ParseMutation(*simBreak)
	if !ok {
		t.Fatalf("no mutation %q", *simBreak)
	}
	if *simSeed != 0 {
		o := simulate(t, *simSeed, mutation, true)
		t.Logf("%s", o.history)
		for _, v := range o.verdicts {
			t.Errorf("seed %d: %s", *simSeed, v)
		}
		return
	}
	if testing.Short() {
		*simCount = min(*simCount, 200)
	}
	r := &simRun{t: t, start: time.Now(), mutation: mutation}
	r.next.Store(*simFirst)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // little lives for longer than its world
	t.Run("worlds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("lane", func(t *testing.T) {
				t.Parallel()
				r.lane(t)
			})
		}
	})
	t.Log(r)
	r.provesSomething()
}

// provesSomething fails a run in which too little happened for its silence to
// mean anything.
func (r *simRun) provesSomething() {
	if r.failed > 0 || r.worlds < 50 || *simSky != "" {
		return
	}
	per := func(n int) float64 { return float64(n) / float64(r.worlds) }
	for _, least := range []struct {
		what       string
		per, least float64
	}{
		{"simulated seconds", r.total.simulated.Seconds() / float64(r.worlds), 180},
		{"events", per(r.total.events), 1000},
		{"faults", per(r.total.faults), 5},
		{"acquisitions", per(r.total.held), 25},
		{"acquisitions in turn", per(r.total.inTurn), 1},
		{"hundredths of a lost quorum", 100 * per(r.total.losses), 3},
	} {
		if least.per < least.least {
			r.t.Errorf("%.1f %s in a world are too few: at least %.0f are wanted", least.per, least.what, least.least)
		}
	}
}

// A seed is of use only if it leads to the same world again. It does unless two
// goroutines do something in one nanosecond, which the Go scheduler orders.
func TestSimReplays(t *testing.T) {
	const seeds, enough = 60, 18
	if simWorlds < 1000 {
		t.Skip("the race detector has goroutines take turns as they would not otherwise")
	}
	same := 0
	for seed := range uint64(seeds) {
		first, second := simulate(t, seed+1, sim.None, false), simulate(t, seed+1, sim.None, false)
		if first.digest == second.digest {
			same++
		}
	}
	t.Logf("%d of %d worlds were the same twice", same, seeds)
	if same < enough {
		t.Errorf("%d of %d worlds were the same twice: at least %d are wanted", same, seeds, enough)
	}
}
