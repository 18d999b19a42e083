package sim

import (
	"math"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Clock is a machine's clock. A machine that is paused calls nothing; one that
// is suspended calls nothing, and its monotonic clock stands still.
type Clock struct {
	world *World
	mono0 time.Time

	mu         sync.Mutex // guards what follows; nothing is called while it is held
	mono, boot timeline
	wall       timeline
	stopped    bool
	waiting    []*timer // due while the machine was stopped
	// hesitate is called before what a timer calls.
	hesitate func()
}

var _ clock.Clock = (*Clock)(nil)

func newClock(w *World, rate float64, wall time.Duration) *Clock {
	c := &Clock{world: w, mono0: w.start}
	now := w.Now()
	c.mono.change(now, 0, rate)
	c.boot.change(now, time.Hour, rate)
	c.wall.change(now, wall, rate)
	return c
}

// Now implements clock.Clock.
func (c *Clock) Now() clock.Instant {
	now := c.world.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	i := clock.Instant{Mono: c.mono0.Add(c.mono.at(now)), Boot: c.boot.at(now)}
	switch c.world.Mutation {
	case OneClock:
		i.Boot = c.mono.at(now)
	case WallDeadline:
		i.Mono, i.Boot = c.mono0.Add(c.wall.at(now)), c.wall.at(now)
	}
	return i
}

// Mono implements clock.Clock.
func (c *Clock) Mono() time.Time { return c.Now().Mono }

// Wall implements clock.Clock.
func (c *Clock) Wall() time.Time {
	now := c.world.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono0.Add(epoch + c.wall.at(now))
}

// step sets the wall clock by d.
func (c *Clock) step(d time.Duration) {
	now := c.world.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall.change(now, c.wall.at(now)+d, c.wall.rate)
}

// stop makes timers wait. asleep also stops the monotonic clock.
func (c *Clock) stop(asleep bool) {
	now := c.world.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if asleep {
		c.mono.change(now, c.mono.at(now), 0)
	}
}

// resume ends stop. What was due is called in a moment.
func (c *Clock) resume() {
	now := c.world.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = false
	c.mono.change(now, c.mono.at(now), c.boot.rate)
	for i, t := range c.waiting {
		t.arm(now, 10*time.Microsecond+time.Duration(i)*time.Nanosecond)
	}
	c.waiting = nil
}

type timer struct {
	clock *Clock
	f     func()

	// Guarded by clock.mu.
	due     time.Duration // on the monotonic clock
	pending bool
	round   int // numbers the arming, so that a stale one does nothing
	real    *time.Timer
}

// AfterFunc implements clock.Clock.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &timer{clock: c, f: f}
	t.Reset(d)
	return t
}

// arm has fire called after d of true time at the earliest. The caller holds
// clock.mu.
func (t *timer) arm(now, d time.Duration) {
	t.round++
	round := t.round
	if t.real != nil {
		t.real.Stop()
	}
	t.real = time.AfterFunc(d, func() { t.fire(round) })
}

// left is the true time to go, if the machine goes on running.
func (t *timer) left(now time.Duration) time.Duration {
	d := t.due - t.clock.mono.at(now)
	if d <= 0 || t.clock.mono.rate == 0 {
		return max(d, 0)
	}
	return time.Duration(math.Ceil(float64(d) / t.clock.mono.rate))
}

func (t *timer) fire(round int) {
	c := t.clock
	now := c.world.Now()
	c.mu.Lock()
	if !t.pending || round != t.round {
		c.mu.Unlock()
		return
	}
	if c.stopped {
		c.waiting = append(c.waiting, t)
		c.mu.Unlock()
		return
	}
	if left := t.left(now); left > 0 {
		t.arm(now, left)
		c.mu.Unlock()
		return
	}
	t.pending = false
	c.mu.Unlock()
	if c.hesitate != nil {
		c.hesitate()
	}
	t.f()
}

// Stop implements clock.Timer.
func (t *timer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	was := t.pending
	t.pending = false
	t.real.Stop()
	return was
}

// Reset implements clock.Timer.
func (t *timer) Reset(d time.Duration) bool {
	c := t.clock
	now := c.world.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	was := t.pending
	t.pending = true
	t.due = c.mono.at(now) + max(d, 0)
	t.arm(now, t.left(now))
	return was
}
