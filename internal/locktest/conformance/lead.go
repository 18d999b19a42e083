package conformance

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// tokenOf is the term of the lead under which ctx was made.
func tokenOf(t *testing.T, ctx context.Context, name string) uint64 {
	t.Helper()
	lock, ok := redlatch.Held(ctx, name)
	if !ok {
		t.Error("the ctx of the work carries no lead")
		return 0
	}
	return lock.Token()
}

// What Campaign runs leads, has the caller's values and deadline, and its error comes back.
func leadResult(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	failure, last := errors.New("the work failed"), uint64(0)
	for _, want := range []error{nil, failure, context.Canceled} { // the last with the lead held
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "value"), locktest.Patience)
		ran := 0
		err := client.Campaign(ctx, t.Name(), func(ctx context.Context) error {
			ran++
			if ctx.Value(ctxKey{}) != "value" {
				t.Error("the caller's values are missing")
			}
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the caller's deadline is missing")
			}
			token := tokenOf(t, ctx, t.Name())
			if token <= last {
				t.Errorf("term %d follows %d", token, last)
			}
			last = token
			if _, err := locktest.TryInTime(t, other, t.Name()); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("inside: %v", err)
			}
			return want
		})
		cancel()
		if !errors.Is(err, want) || want == nil && err != nil || ran != 1 {
			t.Errorf("%v, want %v, ran %d times", err, want, ran)
		}
		awaitGone(t, s, t.Name())
	}
}

// A panic and runtime.Goexit go their way, and the lead is released.
func leadPanics(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	for _, end := range []func(){func() { panic("on purpose") }, runtime.Goexit} {
		ended := make(chan any)
		go func() {
			defer close(ended)
			defer func() { recover() }()
			client.Campaign(t.Context(), t.Name(), func(context.Context) error { end(); return nil })
			t.Error("it went on")
		}()
		<-ended
		awaitGone(t, s, t.Name())
	}
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
}

// Of several candidates one leads at a time, the next as soon as it has returned, under a larger
// token.
func leadInTurn(t *testing.T, s Stage) {
	const candidates, terms = 3, 3
	var leading atomic.Int32
	var last atomic.Uint64
	ended := make(chan error)
	for range candidates {
		client := s.Open(t, redlatch.Config{})
		go func() {
			var err error
			for range terms {
				err = errors.Join(err, client.Campaign(locktest.Within(t, locktest.Patience), t.Name(), func(ctx context.Context) error {
					if now := leading.Add(1); now != 1 {
						t.Errorf("%d lead", now)
					}
					defer leading.Add(-1)
					token := tokenOf(t, ctx, t.Name())
					if before := last.Swap(token); token <= before {
						t.Errorf("term %d follows %d", token, before)
					}
					return ctx.Err()
				}))
			}
			ended <- err
		}()
	}
	for range candidates {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	awaitGone(t, s, t.Name())
}

// lose has the lock be another's on so many nodes that it is lost, until the test gives it back.
func lose(t *testing.T, s Stage, name string) (giveBack func()) {
	t.Helper()
	for i := range stolen(s) {
		s.Set(t, i, name, "theirs")
	}
	return func() {
		for i := range s.Nodes() {
			if s.Value(t, i, name) == "theirs" {
				s.Set(t, i, name, "")
			}
		}
	}
}

// Who has lost the lead leads again when it can: not before the work has returned, and under a larger
// token. The work may return nothing, or why its ctx ended.
func leadAgain(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	client := s.Open(t, redlatch.Config{})
	answers := []func(ctx context.Context) error{
		func(context.Context) error { return nil }, context.Context.Err, context.Cause,
	}
	terms, last, working := 0, uint64(0), false
	err := client.Campaign(locktest.Within(t, 2*locktest.Patience), t.Name(), func(ctx context.Context) error {
		if working {
			t.Error("the work of the term before has not returned")
		}
		working = true
		defer func() { working = false }()
		token := tokenOf(t, ctx, t.Name())
		if token <= last {
			t.Errorf("term %d follows %d", token, last)
		}
		last = token
		if terms++; terms > len(answers) {
			return nil
		}
		giveBack := lose(t, s, t.Name())
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), redlatch.ErrLost) {
			t.Errorf("the ctx of the work ended by %v", context.Cause(ctx))
		}
		giveBack()
		return answers[terms-1](ctx)
	}, redlatch.WithTTL(1500*time.Millisecond))
	if err != nil || terms != len(answers)+1 {
		t.Errorf("%v after %d terms", err, terms)
	}
	awaitGone(t, s, t.Name())
}

// An error of the work's own ends the campaign also after a loss, which is said, too.
func leadFails(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	client, failure, ran := s.Open(t, redlatch.Config{}), errors.New("the work failed"), 0
	err := client.Campaign(locktest.Within(t, locktest.Patience), t.Name(), func(ctx context.Context) error {
		ran++
		lose(t, s, t.Name())
		<-ctx.Done()
		return failure
	}, redlatch.WithTTL(1500*time.Millisecond))
	if !errors.Is(err, failure) || !errors.Is(err, redlatch.ErrLost) || ran != 1 {
		t.Errorf("%v, ran %d times", err, ran)
	}
}

// The lead is held until the work has returned: longer than MaxHold, and longer than the ctx of
// Campaign.
func leadUntilReturned(t *testing.T, s Stage) {
	const ttl = 9 * time.Second // for a busy machine to renew it
	client, other := s.Open(t, redlatch.Config{MaxHold: 500 * time.Millisecond}), s.Open(t, redlatch.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := client.Campaign(ctx, t.Name(), func(ctx context.Context) error {
		lock, _ := redlatch.Held(ctx, t.Name())
		first := lock.Until()
		locktest.Await(t, "renewed", func() bool { return lock.Err() != nil || lock.Until().After(first) }) // when MaxHold is over
		if ctx.Err() != nil || lock.Err() != nil {
			t.Errorf("after MaxHold: %v, %v", context.Cause(ctx), lock.Err())
		}
		cancel()
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("the ctx of the work ended by %v", context.Cause(ctx))
		}
		first = lock.Until()
		locktest.Await(t, "renewed again", func() bool { return lock.Err() != nil || lock.Until().After(first) })
		if _, err := locktest.TryInTime(t, other, t.Name()); !errors.Is(err, redlatch.ErrHeld) || lock.Err() != nil {
			t.Errorf("while the work goes on: %v, %v", err, lock.Err())
		}
		return nil
	}, redlatch.WithTTL(ttl))
	if err != nil {
		t.Error(err)
	}
	awaitGone(t, s, t.Name())
}

// Close ends the ctx of the work, and waits for the work before it releases the lead.
func leadWhenTheClientCloses(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	closed := make(chan error, 1)
	err := client.Campaign(t.Context(), t.Name(), func(ctx context.Context) error {
		go func() { closed <- client.Close() }()
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, redlatch.ErrReleased) || !errors.Is(cause, redlatch.ErrClosed) {
			t.Errorf("the ctx of the work ended by %v", cause)
		}
		for range 3 {
			if _, err := locktest.TryInTime(t, other, t.Name()); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("while the work goes on: %v", err)
			}
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("%v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	awaitGone(t, s, t.Name())
}

// A candidate whose ctx ends is none any more, and those behind it lead.
func leadCancelled(t *testing.T, s Stage) {
	leader, gone, next := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, leader, t.Name())
	cause := errors.New("the candidate's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	report, waits := locktest.WhenWaiting(nil)
	ended := make(chan error, 1)
	go func() {
		ended <- gone.Campaign(ctx, t.Name(), func(context.Context) error { t.Error("it leads"); return nil }, report)
	}()
	<-waits
	report, waits = locktest.WhenWaiting(nil)
	led := make(chan error, 1)
	go func() {
		led <- next.Campaign(locktest.Within(t, locktest.Patience), t.Name(), func(context.Context) error { return nil }, report)
	}()
	<-waits
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) || !errors.Is(err, redlatch.ErrHeld) && !locktest.Late(err) {
		t.Errorf("the candidate: %v", err)
	}
	locktest.Unlock(t, lock)
	if err := <-led; err != nil {
		t.Errorf("the one behind: %v", err)
	}
	awaitGone(t, s, t.Name())
	for _, c := range []Client{gone, next} { // one that was woken up when it had gone passes that on
		lock, err := c.Lock(locktest.Within(t, locktest.Patience), t.Name())
		if err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, lock)
	}
}

// What ends a lead is refused.
func leadRefused(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	nothing := func(context.Context) error { t.Error("it ran"); return nil }
	for what, err := range map[string]error{
		"fn":             client.Campaign(t.Context(), t.Name(), nil),
		"WithMaxHold":    client.Campaign(t.Context(), t.Name(), nothing, redlatch.WithMaxHold(time.Minute)),
		"WithoutRenewal": client.Campaign(t.Context(), t.Name(), nothing, redlatch.WithoutRenewal()),
		"no name":        client.Campaign(t.Context(), "", nothing),
	} {
		if !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
