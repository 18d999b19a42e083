package sim_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

// simReading is processes in which some always want to read and some to write under one name, in a world without
// faults in which every hold takes as long.
type simReading struct {
	world *sim.World
	nodes int
	// slowest is the delay of the slowest node, and settle what a caller may need until it is in the queue, and a
	// process that others wait has been told.
	slowest, settle time.Duration
	// readers and writers are the callers of each process.
	readers, writers []int
	over             time.Duration

	mu sync.Mutex // guards what follows
	// reading and waiting are the readers and the writers who wait.
	reading, waiting map[*simWaiter]bool
	// served counts the readers and writers who got in; longest are the longest waits of each.
	served  [2]int
	longest [2]time.Duration
	// most is by how many readers a writer was passed, and lost what a split of the votes may cost.
	most int
	lost time.Duration
}

// How long each holds.
const simHold = 40 * time.Millisecond

// simWaiter is one who waits. passed counts who got in since it must have been in the queue: before a reader
// writers, and before a writer readers who came later.
type simWaiter struct {
	came   time.Duration
	passed int
}

// newSimReading draws a world: quick nodes, of which one may be slow to answer everybody.
func newSimReading(seed uint64) *simReading {
	w := sim.New(seed, sim.None)
	r := w.Rand("reading")
	s := &simReading{world: w, nodes: []int{1, 3, 3, 5}[r.IntN(4)], over: 2 * time.Second, reading: make(map[*simWaiter]bool), waiting: make(map[*simWaiter]bool)}
	networks := make([]sim.Network, s.nodes)
	for i := range networks {
		w.NewNode(sim.Always, false, 1, 0, time.Hour)
		networks[i] = sim.Network{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond}
	}
	s.slowest = networks[0].Delay
	if r.IntN(2) == 0 {
		s.slowest = []time.Duration{time.Millisecond, 5 * time.Millisecond}[r.IntN(2)]
		networks[r.IntN(s.nodes)].Delay = s.slowest
	}
	s.settle = 10*time.Millisecond + 10*s.slowest
	if s.nodes > 1 {
		s.lost = 250 * time.Millisecond
	}
	more := r.IntN(3) // 0: one writes
	for range 3 {
		w.NewMachine(1, 0, networks)
		s.readers, s.writers = append(s.readers, 4+r.IntN(6)), append(s.writers, r.IntN(1+more))
	}
	s.writers[0]++
	return s
}

// sum is how many callers there are.
func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// live has all read and write until the world is over.
func (s *simReading) live() {
	var callers sync.WaitGroup
	var clients []*redlatch.Client
	for i, readers := range s.readers {
		m := s.world.Machine(i)
		client, err := openInWorld(redlatch.Config{TTL: 4 * time.Second, MaxTTL: 8 * time.Second, NoQuarantine: true, Label: m.Name}, s.world, m, false)
		if err != nil {
			s.world.Judge.Condemn("open: %v", err)
			return
		}
		clients = append(clients, client)
		for range readers {
			callers.Go(func() { s.call(client, s.read) })
		}
		for range s.writers[i] {
			callers.Go(func() { s.call(client, s.write) })
		}
	}
	callers.Wait()
	for _, client := range clients {
		client.Close()
	}
}

// call has one caller hold again and again.
func (s *simReading) call(client *redlatch.Client, acquire func(*redlatch.Client) (*redlatch.Lock, error)) {
	for s.world.Now() < s.over && len(s.world.Judge.Verdicts()) == 0 {
		lock, err := acquire(client)
		if err != nil {
			s.world.Judge.Condemn("%v", err)
			return
		}
		time.Sleep(simHold)
		if err := lock.Unlock(context.Background()); err != nil {
			s.world.Judge.Condemn("unlock: %v", err)
		}
	}
}

// read waits until one reads.
func (s *simReading) read(client *redlatch.Client) (*redlatch.Lock, error) {
	me := &simWaiter{came: s.world.Now()}
	s.mu.Lock()
	s.reading[me] = true
	s.mu.Unlock()
	lock, err := client.RLock(context.Background(), "x")
	now := s.world.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reading, me)
	for w := range s.waiting {
		if me.came > w.came+s.settle {
			w.passed++
		}
	}
	took := now - me.came
	s.served[0]++
	s.longest[0] = max(s.longest[0], took)
	// Who holds when it comes, or is woken up; over several nodes a writer may be heard late.
	if most := 1 + (s.nodes-1)/2; me.passed > most {
		s.world.Judge.Condemn("a reader waited for %d writers, for %v: at most %d may come before it", me.passed, took, most)
	}
	// The readers who are in and a writer, and the same again where it was late to hear of them.
	if most := time.Duration(5+s.nodes/2)*simHold + 2*s.settle + s.lost; took > most {
		s.world.Judge.Condemn("a reader waited for %v: readers who wait go in together, after %v at most", took, most)
	}
	return lock, err
}

// write waits until one writes.
func (s *simReading) write(client *redlatch.Client) (*redlatch.Lock, error) {
	me := &simWaiter{came: s.world.Now()}
	s.mu.Lock()
	s.waiting[me] = true
	s.mu.Unlock()
	lock, err := client.Lock(context.Background(), "x")
	now := s.world.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, me)
	for r := range s.reading {
		if now > r.came+s.settle {
			r.passed++
		}
	}
	took := now - me.came
	s.served[1]++
	s.longest[1], s.most = max(s.longest[1], took), max(s.most, me.passed)
	if slices.Max(s.writers) > 1 {
		return lock, err // a process may hand the lock on inside itself, eight times
	}
	// A phase of readers before each of the others, and a few who had not heard that it waits.
	most := (sum(s.writers) - 1) * sum(s.readers)
	most += (s.nodes - 1) / 2 * 6
	if me.passed > most {
		s.world.Judge.Condemn("a writer was passed by %d readers, for %v: %d at most may come before it", me.passed, took, most)
	}
	// Each writer before it, with the readers before that one, and those before itself.
	if most := time.Duration(sum(s.writers)) * (2*simHold + 2*s.settle); took > most+simHold+s.lost {
		s.world.Judge.Condemn("at %v a writer has waited for %v, with %d writers for %v at most", now, took, sum(s.writers), most)
	}
	return lock, err
}

// Readers and writers who want one name all the time let each other in: a writer waits for the readers who are
// in, and for a phase of readers with each writer before it; a reader for one writer.
func TestSimReadersAreFair(t *testing.T) {
	t.Parallel()
	if testing.Short() || simWorlds < 1000 {
		t.Skip("what a writer may be passed by is known of exact worlds")
	}
	if !serially(t) {
		return
	}
	// In others a writer may be passed by some readers more, although every rule holds.
	worlds := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 24, 25, 26, 27, 28, 29, 59, 86}
	worlds = worlds[:part(len(worlds))]
	if *simSeed != 0 {
		worlds = []uint64{*simSeed}
	}
	var served [2]int
	for _, seed := range worlds {
		clean()
		synctest.Test(t, func(t *testing.T) {
			s := newSimReading(seed)
			s.live()
			s.world.End()
			served[0], served[1] = served[0]+s.served[0], served[1]+s.served[1]
			if testing.Verbose() {
				t.Logf("seed %d with %d nodes, the slowest %v, %v readers, %v writers: %d and %d served, longest waits %v and %v, passed by %d",
					seed, s.nodes, s.slowest, s.readers, s.writers, s.served[0], s.served[1], s.longest[0], s.longest[1], s.most)
			}
			verdicts := s.world.Judge.Verdicts()
			if len(verdicts) == 0 {
				return
			}
			var b strings.Builder
			if *simSeed != 0 {
				s.world.History.Print(&b)
			}
			t.Errorf("seed %d: %d nodes, the slowest %v: %s\n%s\treplay: go test ./internal/sim -run TestSimReadersAreFair -sim.seed=%d",
				seed, s.nodes, s.slowest, verdicts[0], b.String(), seed)
		})
		if t.Failed() {
			return
		}
	}
	if *simSeed == 0 && (served[0] < 100*len(worlds) || served[1] < 10*len(worlds)) {
		t.Errorf("%d readers and %d writers are too few", served[0], served[1])
	}
}
