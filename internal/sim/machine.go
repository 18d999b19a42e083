package sim

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
)

// Machine is where one client process runs: its clock, and its connections.
type Machine struct {
	Name  string
	world *World
	index int
	lives int // numbers the processes that ran here
	clock *Clock
	paths []*path // one a node
	end   chan struct{}
	// Stranger: the settings of its client are not those of the others.
	Stranger bool
	// stalls is how often one of its goroutines stands still, for up to stall: where it sends a
	// command, hears the answer, is called by a timer or by a message.
	stalls float64
	stall  time.Duration
	// halted is paused != nil, for those who do not hold world.mu.
	halted atomic.Bool

	// Guarded by world.mu.
	ids    *rand.Rand // what its process's ids are made of
	conns  []*Conn
	paused chan struct{} // closed at the end of the pause; nil when it runs
	dead   bool
	// stalled is until when a goroutine stands still at most.
	stalled time.Duration
	// stopped is the end of the last pause, -1 when there was none.
	stopped time.Duration
}

// NewMachine returns a machine whose clocks run at rate, with its wall clock
// off by wall. like is how its network behaves to each node.
func (w *World) NewMachine(rate float64, wall time.Duration, like []Network) *Machine {
	i := len(w.machines)
	m := &Machine{Name: fmt.Sprintf("client%d", i+1), world: w, index: i, clock: newClock(w, rate, wall), end: make(chan struct{}), stopped: -1}
	for n := range w.nodes {
		m.paths = append(m.paths, &path{network: like[n], usual: like[n]})
	}
	m.ids = m.Rand("ids", 0)
	m.clock.hesitate = func() { w.Machine(i).hesitate(5) }
	w.machines = append(w.machines, m)
	w.all = append(w.all, m.paths)
	return m
}

// Reborn returns the machine as a new process finds it: the old one is dead.
func (m *Machine) Reborn() *Machine {
	next := &Machine{Name: m.Name, world: m.world, index: m.index, lives: m.lives + 1, clock: m.clock, paths: m.paths, end: make(chan struct{}), stopped: -1, stalls: m.stalls, stall: m.stall, Stranger: m.Stranger}
	next.ids = next.Rand("ids", 0)
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines[m.index] = next
	return next
}

// Clock is the machine's clock.
func (m *Machine) Clock() clock.Clock { return m.clock }

// Rand returns a stream of random numbers for one purpose of this process.
func (m *Machine) Rand(purpose string, n int) *rand.Rand {
	return m.world.Rand(purpose, m.index, m.lives, n)
}

// Draw returns a random duration below d. It depends on the moment and not on
// what was drawn before, so that it does not matter which of several goroutines
// asks first.
func (m *Machine) Draw(d time.Duration) time.Duration {
	r := rand.NewPCG(m.world.Seed+uint64(m.index)<<32+uint64(m.lives)<<40, uint64(m.world.Now()))
	return time.Duration(rand.New(r).Int64N(int64(d)))
}

// Random returns bytes that no id of another has.
func (m *Machine) Random() (b [16]byte) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	for i := range b {
		b[i] = byte(m.ids.Uint32())
	}
	return b
}

// Dial returns a connection to node i.
func (m *Machine) Dial(i int) driver.Conn {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &Conn{machine: m, node: w.nodes[i], path: m.paths[i], rng: m.Rand("conn", i)}
	if w.Mutation == ReleaseOvertakes {
		c.aside = &Conn{machine: m, node: w.nodes[i], path: m.paths[i], rng: m.Rand("aside", i)}
		m.conns = append(m.conns, c.aside)
	}
	m.conns = append(m.conns, c)
	return c
}

// Run waits while the process is paused, and reports whether it was. A dead
// process goes on: nothing that it does is seen.
func (m *Machine) Run() (waited bool) {
	for ; ; waited = true {
		m.world.mu.Lock()
		paused := m.paused
		m.world.mu.Unlock()
		if paused == nil {
			return waited
		}
		<-paused
	}
}

// Stalls has goroutines of the process stand still.
func (m *Machine) Stalls(often float64, longest time.Duration) { m.stalls, m.stall = often, longest }

// hesitate has the goroutine that calls it stand still for a while, if it is so drawn, and after
// that for as long as its process is paused. It must hold no mutex. It draws by the moment, as Draw does.
func (m *Machine) hesitate(where uint64) {
	if m.stalls == 0 || m.world.quiet.Load() {
		return
	}
	w := m.world
	r := rand.New(rand.NewPCG(w.Seed+uint64(m.index)<<32+where<<48, uint64(w.Now())))
	if r.Float64() >= m.stalls {
		return
	}
	d := between(r, 0, m.stall)
	w.mu.Lock()
	m.disturb(w.Now() + d)
	m.stalled = max(m.stalled, w.Now()+d)
	w.History.Add(m.Name, "a goroutine stalls for %v", d)
	w.mu.Unlock()
	time.Sleep(d)
	m.Run()
}

// Life numbers the processes that ran on the machine.
func (m *Machine) Life() int { return m.lives }

// Dead is closed when the process is killed.
func (m *Machine) Dead() <-chan struct{} { return m.end }

// alive reports whether the process was not killed, and when it was last
// stopped.
func (m *Machine) alive() (alive bool, stopped time.Duration) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	return !m.dead, m.stopped
}

// Kill ends the process without a word. What its kernel had been given to send
// may arrive.
func (m *Machine) Kill() {
	w := m.world
	w.History.Add(m.Name, "is killed")
	w.Judge.Gone(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.dead {
		return
	}
	m.dead = true // which is nobody else's trouble: whoever listens no more is left out
	close(m.end)
	process := fmt.Sprintf("%s-%d", m.Name, m.lives)
	w.killed[process], w.ended[process] = true, w.Now()
	for _, c := range m.conns {
		c.sever(errKilled)
	}
	m.endPause()
}

// Pause stops the process for d, as SIGSTOP does; asleep suspends the machine,
// whose monotonic clock then stands still.
func (m *Machine) Pause(d time.Duration, asleep bool) {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.paused != nil || m.dead {
		return
	}
	verb := "is stopped"
	if asleep {
		verb = "is suspended"
	}
	w.History.Add(m.Name, "%s for %v", verb, d)
	m.paused = make(chan struct{})
	m.halted.Store(true)
	m.clock.stop(asleep)
	m.disturb(w.Now() + d)
	w.after(d, func() {
		if m.paused != nil {
			w.History.Add(m.Name, "goes on")
		}
		m.endPause()
	})
}

// endPause lets the process go on. The caller holds world.mu.
func (m *Machine) endPause() {
	if m.paused == nil {
		return
	}
	close(m.paused)
	m.paused, m.stopped = nil, m.world.Now()
	m.halted.Store(false)
	m.clock.resume()
	// What waited comes before the timers that were due, or after them.
	for _, c := range m.conns {
		if s := c.stream; s != nil {
			s.back.release(between(c.rng, 0, 20*time.Microsecond))
		}
	}
}

// StepWall steps the machine's wall clock.
func (m *Machine) StepWall(d time.Duration) {
	m.world.History.Add(m.Name, "wall clock stepped by %v", d)
	m.clock.step(d)
}

// Sever breaks the connection to node i.
func (m *Machine) Sever(i int) {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range m.conns {
		if c.node.index == i && c.stream != nil {
			w.History.Add(m.Name, "connection to %s is cut", c.node.Name)
			c.sever(errReset)
		}
	}
}

// Partition holds what passes between the machine and node i, one way or both,
// for d.
func (m *Machine) Partition(i int, there, back bool, d time.Duration) {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	p := m.paths[i]
	now := w.Now()
	w.History.Add(m.Name, "partition from %s for %v (there %t, back %t)", w.nodes[i].Name, d, there, back)
	if there {
		p.thereUntil = max(p.thereUntil, now+d)
	}
	if back {
		p.backUntil = max(p.backUntil, now+d)
	}
	p.disturb(now + d)
	w.after(d, func() {
		for _, c := range w.machines[m.index].conns {
			if s := c.stream; s != nil && c.node.index == i {
				s.there.release(0)
				s.back.release(0)
			}
		}
	})
}

// Slow makes the way to node i slower by d, for as long.
func (m *Machine) Slow(i int, by, d time.Duration) {
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	p := m.paths[i]
	w.History.Add(m.Name, "way to %s slower by %v for %v", w.nodes[i].Name, by, d)
	p.slower, p.slowUntil = by, w.Now()+d
	p.disturb(w.Now() + d + by)
}
