package clock

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/seed"
)

// counting is a Clock that knows of the timers it gave.
type counting struct {
	Clock
	made int
}

func (c *counting) AfterFunc(d time.Duration, f func()) Timer {
	c.made++
	return c.Clock.AfterFunc(d, f)
}

// Alarms ring when their time has come, in any order of setting them, behind
// one timer.
func TestAlarmsRingOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		under := &counting{Clock: System}
		alarms := NewAlarms(under)
		start := time.Now()
		var mu sync.Mutex
		var rang []time.Duration
		for _, ms := range []int{50, 10, 90, 10, 0, 30, -5} {
			alarms.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
				mu.Lock()
				rang = append(rang, time.Since(start)/time.Millisecond)
				mu.Unlock()
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []time.Duration{0, 0, 10, 10, 30, 50, 90}; !slices.Equal(rang, want) {
			t.Errorf("rang at %v ms, want %v", rang, want)
		}
		if under.made != 1 {
			t.Errorf("%d timers were made", under.made)
		}
	})
}

// Stop and Reset do as time.Timer's, also from within a call.
func TestAlarmStopAndReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		alarms := NewAlarms(System)
		start := time.Now()
		rang := make(chan time.Duration, 10)
		a := alarms.AfterFunc(10*time.Millisecond, func() { rang <- time.Since(start) })
		if !a.Stop() {
			t.Error("stopping a pending alarm reports that it had rung")
		}
		if a.Stop() {
			t.Error("stopping a stopped alarm reports that it was pending")
		}
		time.Sleep(time.Second)
		if len(rang) > 0 {
			t.Error("a stopped alarm rang")
		}

		start = time.Now()
		if a.Reset(10 * time.Millisecond) {
			t.Error("it was not pending")
		}
		if !a.Reset(30 * time.Millisecond) { // later
			t.Error("it was pending")
		}
		if at := <-rang; at != 30*time.Millisecond {
			t.Errorf("rang after %v", at)
		}
		start = time.Now()
		a.Reset(30 * time.Millisecond)
		a.Reset(10 * time.Millisecond) // sooner
		if at := <-rang; at != 10*time.Millisecond {
			t.Errorf("rang after %v", at)
		}
		time.Sleep(time.Second)
		if len(rang) > 0 {
			t.Error("it rang twice")
		}

		// A call that sets its own alarm anew, as a renewal does.
		var again Timer
		ready := make(chan struct{})
		n := 0
		start = time.Now()
		again = alarms.AfterFunc(time.Millisecond, func() {
			<-ready
			if n++; n < 3 {
				again.Reset(time.Millisecond)
				return
			}
			rang <- time.Since(start)
		})
		close(ready)
		if at := <-rang; at != 3*time.Millisecond {
			t.Errorf("the third ring came after %v", at)
		}
	})
}

// A call that blocks delays no other.
func TestAlarmsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		alarms := NewAlarms(System)
		release := make(chan struct{})
		var calls sync.WaitGroup
		calls.Add(2)
		alarms.AfterFunc(time.Millisecond, func() { defer calls.Done(); <-release })
		alarms.AfterFunc(time.Millisecond, func() { defer calls.Done(); close(release) })
		calls.Wait()
	})
}

// Alarms set, moved and stopped at random do exactly as runtime timers would.
func TestAlarmsAtRandom(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(base, 0))
		alarms := NewAlarms(System)
		start := time.Now()
		type both struct {
			tested, reference Timer

			mu           sync.Mutex // guards what follows
			rang, should []time.Duration
		}
		pairs := make([]*both, 50)
		for i := range pairs {
			p := new(both)
			pairs[i] = p
			d := time.Duration(rng.IntN(1000)) * time.Millisecond
			p.tested = alarms.AfterFunc(d, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.rang = append(p.rang, time.Since(start))
			})
			p.reference = System.AfterFunc(d, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.should = append(p.should, time.Since(start))
			})
		}
		for range 5000 {
			// Between two alarms, so that no change meets a ring.
			into := time.Since(start) % time.Millisecond
			time.Sleep(time.Duration(1+rng.IntN(3))*time.Millisecond + 500*time.Microsecond - into)
			p := pairs[rng.IntN(len(pairs))]
			// The same moment for both: whole milliseconds from the start.
			d := time.Duration(1+rng.IntN(300))*time.Millisecond - time.Since(start)%time.Millisecond
			if rng.IntN(3) == 0 {
				if a, b := p.tested.Stop(), p.reference.Stop(); a != b {
					t.Fatalf("Stop reports %t, a timer's %t", a, b)
				}
			} else if a, b := p.tested.Reset(d), p.reference.Reset(d); a != b {
				t.Fatalf("Reset reports %t, a timer's %t", a, b)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		rings := 0
		for i, p := range pairs {
			rings += len(p.rang)
			if !slices.Equal(p.rang, p.should) {
				t.Errorf("alarm %d rang at %v, a timer at %v", i, p.rang, p.should)
			}
		}
		if rings < 500 {
			t.Errorf("%d rings: the run shows little", rings)
		}
	})
}

// overtaken is a Clock whose timers are set a while after they were asked for, once.
type overtaken struct {
	Clock
	next atomic.Bool // it is the next timer
}

type overtakenTimer struct {
	Timer
	clock *overtaken
}

func (c *overtaken) pass() {
	if c.next.Swap(false) {
		time.Sleep(300 * time.Millisecond)
	}
}

func (c *overtaken) AfterFunc(d time.Duration, f func()) Timer {
	c.pass()
	return overtakenTimer{c.Clock.AfterFunc(d, f), c}
}

func (t overtakenTimer) Reset(d time.Duration) bool {
	t.clock.pass()
	return t.Timer.Reset(d)
}

// An alarm rings on time also if the goroutine that sets it is overtaken after it has read the clock.
func TestAlarmSetByWhoIsOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		under := &overtaken{Clock: System}
		alarms := NewAlarms(under)
		rings := func(what string, start time.Time, set func(ring func())) {
			rang := make(chan struct{})
			set(func() { close(rang) })
			<-rang
			if after := time.Since(start); after != time.Second {
				t.Errorf("%s: rang after %v", what, after)
			}
		}
		for _, what := range []string{"first timer", "timer set again"} {
			under.next.Store(true)
			rings(what, time.Now(), func(ring func()) { alarms.AfterFunc(time.Second, ring) })
		}
		rings("timer set for the next", time.Now(), func(ring func()) {
			alarms.AfterFunc(100*time.Millisecond, func() {})
			alarms.AfterFunc(time.Second, ring)
			under.next.Store(true)
		})
		start := time.Now()
		time.Sleep(300 * time.Millisecond)
		rings("an earlier reading", start, func(ring func()) { alarms.SetFrom(new(Alarm), start, time.Second, ringerFunc(ring)) })
	})
}
