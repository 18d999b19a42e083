package quorum

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Whoever waits for a round context learns of its end, however the two meet, and what follows it
// is called once, unless it was stopped before.
func TestRoundContextEnds(t *testing.T) {
	t.Parallel()
	for range 2000 {
		s := new(roundContext)
		var all sync.WaitGroup
		all.Go(s.end)
		for range 2 {
			all.Go(func() { <-s.Done() })
			all.Go(func() {
				called := make(chan struct{})
				if !s.AfterFunc(func() { close(called) })() {
					<-called
				}
			})
			all.Go(func() {
				ctx, cancel := context.WithCancel(s)
				defer cancel()
				<-ctx.Done()
			})
		}
		all.Wait()
		if s.Err() == nil {
			t.Fatal("it has ended and says nothing")
		}
	}
}

// The limit of a round context is counted from its start, however late somebody first waits for the
// end, and there is none where that was said before or after.
func TestRoundContextLimit(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	const never = time.Hour
	wait := func(s *roundContext) { s.AfterFunc(func() {}) }
	for name, c := range map[string]struct {
		before func(s *roundContext) // takes no time, or pauses
		want   time.Duration         // after before began
	}{
		"waited for at once":                {func(*roundContext) {}, limit},
		"waited for later":                  {func(*roundContext) { time.Sleep(limit / 2) }, limit},
		"waited for too late":               {func(*roundContext) { time.Sleep(2 * limit) }, 2 * limit},
		"waited for twice":                  {func(s *roundContext) { wait(s); time.Sleep(limit / 2) }, limit},
		"prolonged before anybody waits":    {func(s *roundContext) { s.prolong(2 * limit) }, 2 * limit},
		"prolonged when somebody waits":     {func(s *roundContext) { wait(s); time.Sleep(limit / 2); s.prolong(2 * limit) }, 2 * limit},
		"without limit before any wait":     {func(s *roundContext) { s.unlimit() }, never},
		"without limit when somebody waits": {func(s *roundContext) { wait(s); s.unlimit() }, never},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s := new(roundContext)
				s.begin(&Engine{clock: clock.NewAlarms(clock.System)}, start, limit)
				c.before(s)
				time.AfterFunc(never-time.Since(start), s.end)
				<-s.Done()
				if got := time.Since(start); got != c.want {
					t.Errorf("it ended after %v, want %v", got, c.want)
				}
			})
		})
	}
}

// A round context whose limit is taken away while others begin to wait has none, or ends.
func TestRoundContextLimitAtTheSameTime(t *testing.T) {
	t.Parallel()
	alarms := clock.NewAlarms(clock.System)
	for range 2000 {
		s := new(roundContext)
		s.begin(&Engine{clock: alarms}, alarms.Mono(), time.Microsecond)
		var all sync.WaitGroup
		all.Go(s.unlimit)
		all.Go(func() { s.prolong(time.Millisecond) })
		all.Go(func() { s.AfterFunc(func() {})() })
		all.Go(func() { <-s.Done() })
		all.Go(s.end)
		all.Wait()
	}
}
