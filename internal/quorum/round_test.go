package quorum

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// The limit of a round context is counted from its start, and there is none where that was said.
func TestRoundContextLimit(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	const never = time.Hour
	for name, c := range map[string]struct {
		before func(s *roundContext) // takes no time, or pauses
		want   time.Duration         // after before began
	}{
		"at once":            {func(*roundContext) {}, limit},
		"prolonged":          {func(s *roundContext) { time.Sleep(limit / 2); s.prolong(2 * limit) }, 2 * limit},
		"without limit":      {func(s *roundContext) { s.unlimit() }, never},
		"prolonged too late": {func(s *roundContext) { time.Sleep(limit); synctest.Wait(); s.prolong(2 * limit) }, limit},
		"told to end":        {func(s *roundContext) { s.end() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s := new(roundContext)
				s.begin(&Engine{clock: clock.NewAlarms(clock.System)}, start, limit)
				var ended time.Duration
				context.AfterFunc(s, func() { ended = time.Since(start) })
				c.before(s)
				time.AfterFunc(never-time.Since(start), s.end)
				<-s.Done()
				synctest.Wait()
				if ended != c.want {
					t.Errorf("it ended after %v, want %v", ended, c.want)
				}
			})
		})
	}
}

// Whoever waits for a round context learns of its end, however the two meet, and what follows it
// is called once, unless it was stopped before.
func TestRoundContextEnds(t *testing.T) {
	t.Parallel()
	alarms := clock.NewAlarms(clock.System)
	for range 2000 {
		s := new(roundContext)
		s.begin(&Engine{clock: alarms}, alarms.Mono(), time.Hour)
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

// A round context may be ended, prolonged and left without a limit at the same time.
func TestRoundContextAtTheSameTime(t *testing.T) {
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
