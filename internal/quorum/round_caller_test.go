package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A round context that a caller attends ends with either, whether somebody waited for it before
// or asks afterwards, and with the round context alone when the caller has left.
func TestCallerRound(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	for name, c := range map[string]struct {
		wait, leave, caller bool // what is done first, and whether the caller's ctx ends
		after               time.Duration
	}{
		"the caller's ctx, waited for":      {wait: true, caller: true},
		"the caller's ctx, asked for later": {caller: true},
		"the limit, waited for":             {wait: true, after: limit},
		"the limit, asked for later":        {after: limit},
		"left, waited for":                  {wait: true, leave: true, caller: true, after: limit},
		"left, asked for later":             {leave: true, caller: true, after: limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				round := new(roundContext)
				round.begin(&Engine{clock: clock.NewAlarms(clock.System)}, time.Now(), limit)
				a := &callerRound{roundContext: round, caller: ctx}
				if c.wait {
					a.Done()
				}
				if c.leave {
					a.leave()
				}
				if c.caller {
					cancel()
				}
				start := time.Now()
				<-a.Done()
				if got := time.Since(start); got != c.after {
					t.Errorf("it ended after %v, want %v", got, c.after)
				}
				if a.Err() == nil {
					t.Error("it has ended, and Err says nil")
				}
			})
		})
	}
}

// attend returns a round context that the caller's ctx ends long before its limit.
func attend(t *testing.T, ctx context.Context) *callerRound {
	round := new(roundContext)
	round.begin(&Engine{clock: clock.NewAlarms(clock.System)}, time.Now(), time.Hour)
	t.Cleanup(func() { round.unlimit() })
	return &callerRound{roundContext: round, caller: ctx}
}

// Who asks for the error alone, before a command is sent, learns of the caller's end.
func TestCallerRoundErr(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a := attend(t, ctx)
	if err := a.Err(); err != nil {
		t.Fatalf("before the end: %v", err)
	}
	cancel()
	if a.Err() == nil {
		t.Error("the caller's ctx has ended, and Err says nil")
	}
}

// Who is called at the end of the round context is called at the caller's end.
func TestCallerRoundAfterFunc(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a := attend(t, ctx)
	called := make(chan struct{})
	a.AfterFunc(func() { close(called) })
	cancel()
	select {
	case <-called:
	case <-time.After(10 * time.Second):
		t.Fatal("not called")
	}
}
