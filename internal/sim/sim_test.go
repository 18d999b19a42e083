package sim_test

import (
	"encoding/json"
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
	simSky    = flag.String("sim.weather", "", "TestSim: the weather by its name in package sim, not drawn")
	simReads  = flag.Int("sim.reads", 0, "TestSim: how many of a hundred calls are a reader's, 0 for as many as drawn")
	simTake   = flag.Int("sim.permits", 0, "TestSim: how many of a hundred calls are for permits, 0 for as many as drawn")
	simFail   = flag.Int("sim.fail", 10, "TestSim: stop when so many worlds have failed")
	simBreak  = flag.String("sim.mutation", "none", "TestSim: with this rule broken, by its name in package sim")
	simStand  = flag.Bool("sim.anywhere", false, "TestSim: goroutines stand still at any statement, in a library that is built for it")
	simStalls = flag.Int("sim.stalls", 200, "TestSimStalls: the number of worlds")
	simCount  = flag.Int("sim.count", simWorlds, "TestSim: the least number of worlds")
	simKeep   = flag.Bool("sim.keep", false, "TestSimMutations, TestSimBreaches, TestSimBreachesElsewhere: write the worlds that noticed to testdata/found.txt")

	// What a process is told that is started for worlds.
	simSerial    = flag.Bool("sim.serial", false, "worlds are exact in this process, which runs them itself")
	simStep      = flag.Int64("sim.step", 1, "TestSim: from one seed to the next")
	simHistories = flag.String("sim.histories", "", "TestSim: the folder to write all histories to")
)

// part returns how many of n worlds a test has beside TestSim's -sim.count: all of them beside simWorlds.
func part(n int) int { return max(1, min(n, n**simCount/simWorlds)) }

// partOr is part, or few where -short or the race detector leaves no time for more.
func partOr(n, few int) int {
	if testing.Short() || simWorlds < 1000 {
		return few
	}
	return part(n)
}

// outcome is what one simulated world came to.
type outcome struct {
	verdicts  []string
	history   string
	simulated time.Duration
	held      int
	inTurn    int // of these, those that mostly hold by one attempt with the one before
	losses    int // and those that lost their quorum before their time ran out
	replaced  int // grants of several names in the place of those of one
	events    int // scripts executed, faults, calls and what they came to
	faults    int
}

// simulate lets one world live and end.
func simulate(t *testing.T, seed uint64, m sim.Mutation, detailed bool) (o outcome) {
	clean()
	synctest.Test(t, func(t *testing.T) {
		for range seed % 1000 { // each world goes on at another place in the stream of its runtime's draws
			for range map[int]int{0: 0} {
				break
			}
		}
		w := sim.New(seed, m)
		clients := &simClients{world: w, plan: sim.NewPlan(w, *simSky)}
		if *simReads > 0 {
			clients.plan.Reads = *simReads
		}
		if *simTake > 0 {
			clients.plan.TakePermits(*simTake)
		}
		if *simStand {
			defer w.Anywhere(clients.plan)()
		}
		clients.live()
		w.End()
		o.verdicts = w.Judge.Verdicts()
		o.simulated, o.held, o.events, o.faults = w.Now(), w.Judge.Held(), w.History.Count(), clients.plan.Faults()
		o.inTurn, o.losses, o.replaced = w.Judge.InTurn(), w.Judge.Losses(), w.Judge.Replaced()
		if detailed || len(o.verdicts) > 0 {
			var b strings.Builder
			fmt.Fprintf(&b, "world %d: %s\n", seed, clients.plan)
			w.History.Print(&b)
			o.history = b.String()
		}
	})
	return o
}

// keep writes the history to a file and returns its name.
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
	next  atomic.Int64 // numbers the worlds to come
	// mutation breaks a rule, None of them as a rule.
	mutation sim.Mutation

	mu    sync.Mutex // guards what follows; nothing is called while it is held but what prints
	total totals
	told  time.Time // when progress was last told
}

// totals is what worlds came to.
type totals struct {
	Worlds, Failed                                 int
	Events, Faults, Held, InTurn, Losses, Replaced int
	Simulated, Used                                time.Duration
}

func (t *totals) add(o totals) {
	t.Worlds += o.Worlds
	t.Failed += o.Failed
	t.Events += o.Events
	t.Faults += o.Faults
	t.Held += o.Held
	t.InTurn += o.InTurn
	t.Losses += o.Losses
	t.Replaced += o.Replaced
	t.Simulated += o.Simulated
	t.Used += o.Used
}

func (r *simRun) String() string {
	used := ""
	if r.total.Used > 0 {
		used = fmt.Sprintf(" and %v of processors", r.total.Used.Round(time.Millisecond))
	}
	return fmt.Sprintf("%d worlds, %d failed, %.1f simulated hours, %d events, %d faults, %d acquisitions, %d in turn, %d lost, %d in the place of single names, in %v%s",
		r.total.Worlds, r.total.Failed, r.total.Simulated.Hours(), r.total.Events, r.total.Faults, r.total.Held, r.total.InTurn, r.total.Losses, r.total.Replaced,
		time.Since(r.start).Round(time.Millisecond), used)
}

// serve runs one world after the other.
func (r *simRun) serve(t *testing.T) {
	for {
		offset := (r.next.Add(1) - 1) * *simStep
		if max(offset, -offset) >= int64(*simCount) && time.Since(r.start) >= *simFor {
			return
		}
		seed := *simFirst + uint64(offset)
		o := simulate(t, seed, r.mutation, *simHistories != "")
		if *simHistories != "" {
			if err := os.WriteFile(historyFile(*simHistories, seed), []byte(o.history), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !r.add(t, seed, o) {
			return
		}
	}
}

// add takes in what a world came to, and reports whether to go on.
func (r *simRun) add(t *testing.T, seed uint64, o outcome) (goOn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := totals{Worlds: 1, Simulated: o.simulated, Held: o.held, InTurn: o.inTurn, Losses: o.losses, Replaced: o.replaced, Events: o.events, Faults: o.faults}
	if len(o.verdicts) > 0 {
		one.Failed = 1
		replay := ""
		if !*simSerial {
			replay = " -short -count=20 -failfast" // as this one was run, which is hardly ever the same again
		}
		// Somebody is looking, and a test's own words come at its end.
		fmt.Printf("seed %d: %s\n\tits history: %s\n\treplay: go test ./internal/sim -run 'TestSim$' -sim.seed=%d%s\n",
			seed, strings.Join(o.verdicts, "\n\t"), o.keep(seed), seed, replay)
		t.Fail()
	}
	r.total.add(one)
	if *simFor > 0 && time.Since(r.told) > 10*time.Second {
		r.told = time.Now()
		fmt.Println(r)
	}
	return r.total.Failed < *simFail
}

// saysTotals begins the line in which a process says what its worlds came to.
const saysTotals = "totals: "

// share has a process run each of so many worlds.
func (r *simRun) share(t *testing.T, binary string, i, of int, args ...string) {
	args = append(args, fmt.Sprint("-sim.first=", *simFirst+uint64(i)), fmt.Sprint("-sim.step=", of))
	p := worlds{binary: binary, test: "TestSim", args: args}
	var said totals
	out, err := p.run(t, func(line string) {
		if text, ok := strings.CutPrefix(line, saysTotals); ok {
			if err := json.Unmarshal([]byte(text), &said); err != nil {
				t.Error(err)
			}
		} else if *simFor > 0 {
			fmt.Print(line)
		}
	})
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	said.Used = p.used
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.add(said)
}

// TestSim runs the real client through simulated worlds, each under a seed, in
// virtual time.
//
//	go test ./internal/sim -run 'TestSim$' -v -sim.seed=N    replays one world and prints its history
//	go test ./internal/sim -run 'TestSim$' -v -sim.for=10m       goes on for so long
func TestSim(t *testing.T) {
	mutation, ok := sim.ParseMutation(*simBreak)
	if !ok {
		t.Fatalf("no mutation %q", *simBreak)
	}
	if *simSeed != 0 {
		if !serially(t) {
			return
		}
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
	here, binary := isHere(), ""
	if !here {
		binary = serialBuild(t)
		r.start = time.Now()
	} else if !*simSerial {
		defer debug.SetGCPercent(debug.SetGCPercent(400)) // little lives for longer than its world
	}
	t.Run("worlds", func(t *testing.T) {
		of := runtime.GOMAXPROCS(0)
		for i := range of {
			t.Run("process", func(t *testing.T) {
				t.Parallel()
				if here {
					r.serve(t)
				} else {
					r.share(t, binary, i, of)
				}
			})
		}
	})
	if *simSerial {
		text, err := json.Marshal(r.total)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\n%s%s\n", saysTotals, text)
		return
	}
	t.Log(r)
	r.provesSomething()
}

// provesSomething fails a run in which too little happened for its silence to
// mean anything.
func (r *simRun) provesSomething() {
	if r.total.Failed > 0 || r.total.Worlds < 50 || *simSky != "" {
		return
	}
	per := func(n int) float64 { return float64(n) / float64(r.total.Worlds) }
	for _, least := range []struct {
		what       string
		per, least float64
	}{
		{"simulated seconds", r.total.Simulated.Seconds() / float64(r.total.Worlds), 180},
		{"events", per(r.total.Events), 1000},
		{"faults", per(r.total.Faults), 5},
		{"acquisitions", per(r.total.Held), 25},
		{"acquisitions in turn", per(r.total.InTurn), 1},
		{"hundredths of a lost quorum", 100 * per(r.total.Losses), 3},
		{"tenths of a grant in the place of single names", 10 * per(r.total.Replaced), 1},
	} {
		if least.per < least.least {
			r.t.Errorf("%.1f %s in a world are too few: at least %.0f are wanted", least.per, least.what, least.least)
		}
	}
}
