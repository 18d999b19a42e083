package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// epoch is added to a bubble's time, which starts in the year 2000: tokens are
// to have as many digits as they have today.
const epoch = 26 * 365 * 24 * time.Hour

// World is one simulated world. It is made and used inside one synctest bubble.
type World struct {
	Seed     uint64
	Mutation Mutation
	History  *History
	Judge    *Judge

	start    time.Time
	schedule *schedule

	mu       sync.Mutex // guards the state of nodes, machines and connections; nothing is called while it is held
	nodes    []*Node
	machines []*Machine
	all      [][]*path // of the machines; it does not change once the world lives
	// attempts maps the label of a Lock call to its last attempt.
	attempts map[string]attempt
	// abandoned are the labels of the calls whose keys may outlive them.
	abandoned map[string]bool
	// killed are the processes that were killed, as the labels begin.
	killed map[string]bool
	// fakedUntil has the locks whose counters were faked; foreigners counts the clients of other
	// libraries.
	fakedUntil map[string]time.Duration
	foreigners int
	// demoted is when a server was last a replica.
	demoted time.Duration
	// agreement is what the deployment's clients agree on, by the last record that one has
	// written; usurped: another has come first where all had forgotten it.
	agreement  string
	agreements agreements
	usurped    bool
	// ended has when what was done under a label was over, and for the processes that were killed.
	ended map[string]time.Duration
	// traces are the attempts that were granted a key, by holder id; current those of a
	// name that may still lose one.
	traces       map[string]*trace
	current      map[string][]*trace
	stalledUntil atomic.Int64 // until when a goroutine stands still, of those that do so anywhere
	afterGrant   atomic.Int64 // counts the statements since a grant was heard down, of those that stand still anywhere
	quiet        atomic.Bool  // no goroutine stalls any more
	calmed       bool         // no fault comes any more
}

type attempt struct {
	id string
	at time.Duration // when the first command of it was sent
}

// New returns an empty world.
func New(seed uint64, m Mutation) *World {
	w := &World{
		Seed: seed, Mutation: m, start: time.Now(), attempts: make(map[string]attempt),
		abandoned: make(map[string]bool), killed: make(map[string]bool), ended: make(map[string]time.Duration), fakedUntil: make(map[string]time.Duration),
		agreements: make(agreements), traces: make(map[string]*trace), current: make(map[string][]*trace),
	}
	w.History = &History{world: w}
	w.Judge = newJudge(w)
	w.schedule = newSchedule(w)
	return w
}

// End ends the world: nothing happens any more.
func (w *World) End() { w.schedule.end() }

// after has call happen d from now, holding w.mu.
func (w *World) after(d time.Duration, call func()) {
	w.schedule.after(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		call()
	})
}

// Now is the true time since the world began.
func (w *World) Now() time.Duration { return time.Since(w.start) }

// Rand returns a stream of random numbers for one purpose.
func (w *World) Rand(purpose string, numbers ...int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(purpose))
	for _, n := range numbers {
		h.Write([]byte{0xff, byte(n), byte(n >> 8), byte(n >> 16)})
	}
	return rand.New(rand.NewPCG(w.Seed, h.Sum64()))
}

// Nodes returns the nodes, in order.
func (w *World) Nodes() []*Node { return w.nodes }

// Machine returns machine i as it is now.
func (w *World) Machine(i int) *Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines[i]
}

// Abandoned tells that the lock of the call with this label is left to run out.
func (w *World) Abandoned(label string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned[label] = true
}

// LeftBehind lists the keys of these names that lie on nodes and should not:
// not those of a call that was abandoned or whose process was killed, nor what a
// broken connection still delivered afterwards, nor what a server came up with.
func (w *World) LeftBehind(names []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, n := range w.nodes {
		for _, name := range names {
			for _, id := range n.holdersOf(name).ids() {
				if !w.abandoned[labelOf(id)] && !w.killed[processOf(id)] && !n.late[id] && !n.cameUpWith(name, id) {
					found = append(found, n.Name+" has "+name+" of "+labelOf(id))
				}
			}
		}
	}
	return found
}

// attempted notes that a command of the attempt id is sent.
func (w *World) attempted(id string) {
	label := labelOf(id)
	if w.attempts[label].id != id {
		w.attempts[label] = attempt{id: id, at: w.Now()}
	}
}

// Shared ends a label that all calls of a process may have, so that they can hold one
// after the other by one attempt.
const Shared = "-shared"

// lastAttempt returns when the last attempt of the call with this label began, 0 when
// that cannot be told.
func (w *World) lastAttempt(label string) time.Duration {
	if strings.HasSuffix(label, Shared) {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.attempts[label]
	delete(w.attempts, label)
	return a.at
}

// Labels returns the label of a call: of the machine with that name, its process and the call.
func Labels(machine string, process, call int) string {
	return fmt.Sprintf("%s-%d-%d", machine, process, call)
}

// labelOf returns the label in a holder id: what follows its second dot.
func labelOf(id string) string {
	dots := 0
	for i := range len(id) {
		if id[i] == '.' {
			if dots++; dots == 2 {
				return id[i+1:]
			}
		}
	}
	return id
}

// between draws a duration, evenly.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// around draws a duration whose mean is d, with a long tail.
func around(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(d))
}

// processOf returns the process that a holder id is of: a label begins with the
// machine's name and its process's number.
func processOf(id string) string {
	machine, rest, _ := strings.Cut(labelOf(id), "-")
	life, _, _ := strings.Cut(rest, "-")
	return machine + "-" + life
}
