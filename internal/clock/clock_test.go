package clock

import (
	"testing"
	"time"
)

// A deadline has passed as soon as either clock says so.
func TestReachedByEitherClock(t *testing.T) {
	t.Parallel()
	start := System.Now()
	deadline := start.Add(10 * time.Second)
	cases := []struct {
		name       string
		mono, boot time.Duration // how far each clock has come
		reached    bool
		left       time.Duration
		passed     time.Duration
	}{
		{"both run", 4 * time.Second, 4 * time.Second, false, 6 * time.Second, 4 * time.Second},
		{"a moment before", 10*time.Second - 1, 10*time.Second - 1, false, 1, 10*time.Second - 1},
		{"on time", 10 * time.Second, 10 * time.Second, true, 0, 10 * time.Second},
		{"the machine slept", 4 * time.Second, time.Hour, true, 10*time.Second - time.Hour, time.Hour},
		{"the second clock stands", time.Hour, 4 * time.Second, true, 10*time.Second - time.Hour, time.Hour},
		{"the second clock was stepped back", 10 * time.Second, -time.Hour, true, 0, 10 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := Instant{Mono: start.Mono.Add(c.mono), Boot: start.Boot + c.boot}
			if now.Reached(deadline) != c.reached {
				t.Errorf("reached is %t", now.Reached(deadline))
			}
			if left := now.Until(deadline); left != c.left {
				t.Errorf("%v are left, want %v", left, c.left)
			}
			if passed := now.Since(start); passed != c.passed {
				t.Errorf("%v have passed, want %v", passed, c.passed)
			}
		})
	}
}

// The zero instant is long past, as a validity that nothing was granted for
// must be.
func TestZeroInstantIsPast(t *testing.T) {
	t.Parallel()
	if !System.Now().Reached(Instant{}) {
		t.Error("the zero instant is still to come")
	}
}

// What was made from the clock keeps its monotonic reading: its text shows it,
// and comparing it does not look at the wall.
func TestInstantKeepsItsMonotonicReading(t *testing.T) {
	t.Parallel()
	for name, i := range map[string]Instant{"now": System.Now(), "later": System.Now().Add(time.Second)} {
		if i.Mono == i.Mono.Round(0) {
			t.Errorf("%s: %v has no monotonic reading", name, i.Mono)
		}
	}
	if m := System.Mono(); m == m.Round(0) {
		t.Errorf("%v has no monotonic reading", m)
	}
}

// Both of the machine's clocks run, and at one rate while it does not sleep.
func TestSystemClocksRun(t *testing.T) {
	t.Parallel()
	start := System.Now()
	<-time.After(20 * time.Millisecond)
	end := System.Now()
	mono, boot := end.Mono.Sub(start.Mono), end.Boot-start.Boot
	if mono < 20*time.Millisecond || boot < 20*time.Millisecond {
		t.Errorf("in 20 ms the clocks came %v and %v far", mono, boot)
	}
	// The two are read one after the other, with whatever comes between.
	if d := boot - mono; d < -10*time.Second || d > 10*time.Second {
		t.Errorf("the clocks are %v apart", d)
	}
	if d := time.Since(System.Wall()); d < 0 || d > time.Minute {
		t.Errorf("the wall clock is %v off", d)
	}
}
