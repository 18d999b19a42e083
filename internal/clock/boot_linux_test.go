package clock

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// machine is a machine's clocks, and counts how often it was asked for the one
// that runs through suspend.
type machine struct {
	clocks
	boot  time.Duration
	asked int
	// between is called while the clocks are being read for an offset.
	between func()
}

func (m *machine) bootTime() *bootTime {
	return &bootTime{
		clocks: func() clocks { return m.clocks },
		boot: func() time.Duration {
			m.asked++
			if m.between != nil {
				m.between()
			}
			return m.boot
		},
	}
}

func (m *machine) run(d time.Duration)   { m.mono, m.wall, m.boot = m.mono+d, m.wall+d, m.boot+d }
func (m *machine) sleep(d time.Duration) { m.wall, m.boot = m.wall+d, m.boot+d }
func (m *machine) step(d time.Duration)  { m.wall += d }

// While a machine neither sleeps nor has its clock stepped it is asked once in
// offsetAge.
func TestBootIsMostlyNotAskedFor(t *testing.T) {
	t.Parallel()
	m := &machine{clocks: clocks{mono: time.Hour, wall: 1e18}, boot: 9 * time.Hour}
	b := m.bootTime()
	for range 1000 {
		if got := b.at(m.clocks); got != m.boot {
			t.Fatalf("it reads %v, the machine's clock %v", got, m.boot)
		}
		m.run(time.Millisecond)
	}
	if m.asked != 20 {
		t.Errorf("asked %d times in a second", m.asked)
	}
}

// A sleep is seen by the first reading after it, however the wall clock was
// stepped beside, and at once or offsetAge later where it was stepped so that it
// hides the sleep.
func TestBootAfterASleep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		sleep, step time.Duration
		seen        time.Duration // after so much time
		asked       int
	}{
		{name: "nothing happened"},
		{name: "a sleep", sleep: time.Hour, asked: 1},
		{name: "a short sleep", sleep: offsetStep, asked: 1},
		{name: "a step forward", step: time.Hour, asked: 1},
		{name: "a step back", step: -time.Hour, asked: 1},
		{name: "a sleep, and a step forward", sleep: time.Hour, step: time.Hour, asked: 1},
		{name: "a sleep, and a longer step back", sleep: time.Minute, step: -time.Hour, asked: 1},
		{name: "a sleep, and a step back that hides it", sleep: time.Hour, step: -time.Hour, seen: offsetAge, asked: 1},
		{name: "a sleep too short to be told", sleep: offsetStep - 1, seen: offsetAge, asked: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &machine{clocks: clocks{mono: time.Hour, wall: 1e18}, boot: 9 * time.Hour}
			b := m.bootTime()
			b.at(m.clocks)
			m.asked = 0
			m.sleep(c.sleep)
			m.step(c.step)
			if c.seen > 0 {
				m.run(c.seen - 1)
				if got := b.at(m.clocks); got != m.boot-c.sleep {
					t.Fatalf("it reads %v where the sleep is hidden, want %v: the test shows nothing", got, m.boot-c.sleep)
				}
				m.run(1)
			}
			for range 2 {
				if got := b.at(m.clocks); got != m.boot {
					t.Errorf("it reads %v, the machine's clock %v", got, m.boot)
				}
			}
			if m.asked != c.asked {
				t.Errorf("the machine was asked %d times, want %d", m.asked, c.asked)
			}
		})
	}
}

// An offset is not kept when the process was stopped, or the machine slept, while
// it was read.
func TestBootReadWithABreak(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(*machine){
		"stopped": func(m *machine) { m.run(offsetError) },
		"slept":   func(m *machine) { m.sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &machine{clocks: clocks{mono: time.Hour, wall: 1e18}, boot: 9 * time.Hour}
			b := m.bootTime()
			m.between = func() { between(m) }
			b.at(m.clocks)
			if k := b.known.Load(); k != nil {
				t.Errorf("it relies on %v", k.offset)
			}
			m.between = nil
			if got := b.at(m.clocks); got != m.boot {
				t.Errorf("it reads %v, the machine's clock %v", got, m.boot)
			}
			if b.known.Load() == nil {
				t.Error("it relies on nothing")
			}
		})
	}
}

// The system's reading keeps to the machine's clock, with many who read.
func TestSystemBootIsTheMachines(t *testing.T) {
	t.Parallel()
	var readers sync.WaitGroup
	var worst atomic.Int64
	for range 4 {
		readers.Go(func() {
			for end := time.Now().Add(3 * offsetAge); time.Now().Before(end); {
				before := Boot()
				got := System.Now().Boot
				after := Boot()
				for _, off := range []time.Duration{before - got, got - after} {
					for {
						w := worst.Load()
						if int64(off) <= w || worst.CompareAndSwap(w, int64(off)) {
							break
						}
					}
				}
			}
		})
	}
	readers.Wait()
	if off := time.Duration(worst.Load()); off > offsetStep+offsetError {
		t.Errorf("it was %v off", off)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		System.Now()
	}
}
