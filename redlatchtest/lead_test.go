package redlatchtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// The term counts from before the send of what won it, and of each renewal, not from the answer.
func TestTermCountsFromTheSend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const ttl, late = 10 * time.Second, 40 * time.Millisecond
		locks := New(t, redlatch.Config{TTL: ttl, NodeTimeout: 50 * time.Millisecond})
		locks.Delay(late)
		began := time.Now()
		err := locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
			lock, _ := redlatch.Held(ctx, "a")
			if lasts := lock.Until().Sub(began); lasts >= ttl-ttl/100 || time.Since(began) != late {
				t.Errorf("granted after %v, it lasts until %v after the call", time.Since(began), lasts)
			}
			for first := lock.Until(); lock.Until().Equal(first); {
				time.Sleep(time.Millisecond)
			}
			// The answer has just come: the renewal was sent so long ago.
			if left := time.Until(lock.Until()); left > ttl-ttl/100-late {
				t.Errorf("renewed, it lasts for %v", left)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if got := locks.Calls(); len(got) != 1 || got[0] != (Call{"Campaign", "a"}) {
			t.Errorf("calls: %v", got)
		}
	})
}

// A lead that was lost is not renewed, though the work goes on; what the Observer is told is that of
// one lock after the other.
func TestNoRenewalAfterTheLoss(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		events := new(locktest.Events)
		locks := New(t, redlatch.Config{Observer: events, TTL: 3 * time.Second})
		terms := 0
		err := locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
			if terms++; terms == 2 {
				return nil
			}
			locks.Lose("a")
			if ctx.Err() == nil {
				t.Error("the ctx of the work goes on")
			}
			time.Sleep(time.Minute) // it does not listen
			if held := locks.Held(); len(held) > 0 {
				t.Errorf("held: %v", held)
			}
			return nil
		})
		if err != nil || terms != 2 {
			t.Errorf("%v after %d terms", err, terms)
		}
		if kinds := events.Kinds(); kinds != "LockAcquired LockLost LockAcquired LockReleased" {
			t.Errorf("observed: %s", kinds)
		}
	})
}

// leadAndHang has a campaign lead, and its work hang until hang is closed. ended gets what the campaign returns.
func leadAndHang(t *testing.T, locks *Client) (lead *redlatch.Lock, hang chan struct{}, ended chan error) {
	hang, ended = make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
			lead, _ = redlatch.Held(ctx, "a")
			<-hang
			return nil
		})
	}()
	synctest.Wait()
	return lead, hang, ended
}

// Work that hangs keeps the lead from others until the client is closed, and Close waits for it no
// longer than the validity lasts, which nobody else leads in.
func TestWorkThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		config := redlatch.Config{TTL: 10 * time.Second, MaxHold: time.Second}
		locks := New(t, config)
		peer := locks.Peer(config)
		lock, hang, ended := leadAndHang(t, locks)
		next := locktest.LockIn(t.Context(), peer, "a")
		time.Sleep(time.Hour)
		if lock.Err() != nil {
			t.Fatalf("after an hour: %v", lock.Err())
		}
		until := lock.Until()
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		if now := time.Now(); !now.Equal(until) && now.Before(until) {
			t.Errorf("Close has returned %v before the end of the validity", until.Sub(now))
		}
		if o := <-next; o.Err != nil || time.Now().Before(until) {
			t.Errorf("the next: %v, %v before the end of the validity", o.Err, time.Until(until))
		}
		close(hang)
		if err := <-ended; !errors.Is(err, redlatch.ErrClosed) {
			t.Errorf("the campaign: %v", err)
		}
	})
}

// slowOnce is an Observer that takes its time over the first lock.
type slowOnce struct {
	takes time.Duration
	once  sync.Once
}

func (o *slowOnce) Observe(_ context.Context, e redlatch.Event) {
	if _, ok := e.(redlatch.LockAcquired); ok {
		o.once.Do(func() { time.Sleep(o.takes) })
	}
}

// The work does not begin under a lead that is over by then, but under the next one.
func TestLeadIsOverBeforeTheWork(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{TTL: 3 * time.Second, Observer: &slowOnce{takes: 4 * time.Second}})
		terms := 0
		err := locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
			if terms++; ctx.Err() != nil {
				t.Errorf("term %d begins, and %v", terms, context.Cause(ctx))
			}
			return nil
		})
		if err != nil || terms != 1 {
			t.Errorf("%v after %d terms", err, terms)
		}
	})
}

// What Campaign returns, and whether it campaigns again, for what fn returns when the lead is lost or not.
func TestCampaignEnds(t *testing.T) {
	own := errors.New("own")
	for _, c := range []struct {
		name       string
		lost, done bool // when fn returns
		err        error
		again      bool
		want       []error // none: nil
	}{
		{name: "nil", again: false},
		{name: "own", err: own, want: []error{own}},
		{name: "another lock was lost", err: redlatch.ErrLost, want: []error{redlatch.ErrLost}},
		{name: "another ctx was canceled", err: context.Canceled, want: []error{context.Canceled}},
		{name: "lost, nil", lost: true, again: true},
		{name: "lost, ErrLost", lost: true, err: redlatch.ErrLost, again: true},
		{name: "lost, canceled", lost: true, err: context.Canceled, again: true},
		{name: "lost, own", lost: true, err: own, want: []error{own, redlatch.ErrLost}},
		{name: "lost, late", lost: true, err: context.DeadlineExceeded, want: []error{context.DeadlineExceeded, redlatch.ErrLost}},
		{name: "lost and done", lost: true, done: true, err: context.Canceled, want: []error{context.Canceled, redlatch.ErrLost}},
		{name: "done", done: true, err: context.Canceled, want: []error{context.Canceled}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				locks := New(t, redlatch.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				terms := 0
				err := locks.Campaign(ctx, "a", func(context.Context) error {
					if terms++; terms > 1 {
						return nil
					}
					if c.lost {
						locks.Lose("a")
					}
					if c.done {
						cancel()
					}
					return c.err
				})
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}
				if (err == nil) != (c.want == nil) || !c.lost && c.err != redlatch.ErrLost && errors.Is(err, redlatch.ErrLost) || terms > 1 != c.again {
					t.Errorf("%v after %d terms", err, terms)
				}
				if held := locks.Held(); len(held) > 0 {
					t.Errorf("held: %v", held)
				}
			})
		})
	}
}

// What Campaign does not take is refused, and fn is not called; it leaves the caller's options alone.
func TestCampaignRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		if err := locks.Campaign(t.Context(), "a", nil); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("no fn: %v", err)
		}
		nothing := func(context.Context) error { return nil }
		for name, option := range map[string]redlatch.Option{
			"WithMaxHold": redlatch.WithMaxHold(time.Hour), "WithoutRenewal": redlatch.WithoutRenewal(),
			"WithShared": redlatch.WithShared(), "WithPermits": redlatch.WithPermits(2),
		} {
			err := locks.Campaign(t.Context(), "a", func(context.Context) error { t.Errorf("%s: fn is called", name); return nil }, option)
			if !errors.Is(err, redlatch.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		options := make([]redlatch.Option, 1, 2)
		options[0] = redlatch.WithGuard(time.Second)
		options[:2][1] = redlatch.WithMinHold(10 * time.Second)
		if err := locks.Campaign(t.Context(), "a", nothing, options...); err != nil {
			t.Error(err)
		}
		if err := locks.Do(t.Context(), "a", nothing, options[:2]...); err != nil || locks.Held()["a"].ID == "" {
			t.Errorf("it is not kept by WithMinHold: %v", err)
		}
	})
}

// When the client is closed, the ctx of fn says why: the lead was not lost.
func TestCampaignIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		var why error
		ended := make(chan error, 1)
		go func() {
			ended <- locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
				<-ctx.Done()
				if why = context.Cause(ctx); len(locks.Held()) != 1 {
					t.Error("the lead was released before fn has returned")
				}
				return nil
			})
		}()
		synctest.Wait()
		start := time.Now()
		if err := locks.Close(); err != nil || len(locks.Held()) > 0 {
			t.Errorf("Close: %v, held: %v", err, locks.Held())
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("fn returned at once, and Close %v later", took)
		}
		if err := <-ended; err != nil {
			t.Errorf("the campaign: %v", err)
		}
		if !errors.Is(why, redlatch.ErrReleased) || !errors.Is(why, redlatch.ErrClosed) || errors.Is(why, redlatch.ErrLost) {
			t.Errorf("the cause: %v", why)
		}
	})
}

// lateError is an error that takes its time to tell what it is.
type lateError struct{}

func (lateError) Error() string { return "late" }

func (lateError) Is(error) bool { time.Sleep(time.Second); return false }

// When the client is closed, the campaign releases the lead itself, and returns what comes of that: Close, which
// waits for the work, does not come before it.
func TestCampaignIsClosedAndReleases(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		ended := make(chan error, 1)
		go func() {
			err := locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
				<-ctx.Done()
				return lateError{}
			})
			if len(locks.Held()) > 0 {
				t.Error("the campaign has returned, and holds the lead")
			}
			ended <- err
		}()
		synctest.Wait()
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil || err.Error() != "late" {
			t.Errorf("the campaign: %v", err)
		}
	})
}

// An extension that is under way when the client is closed makes the validity longer for which Close waits for the work.
func TestCloseAwaitsAnExtension(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		config := redlatch.Config{TTL: 10 * time.Second, NodeTimeout: time.Second}
		locks := New(t, config)
		lock, hang, ended := leadAndHang(t, locks)
		until, extended := lock.Until(), make(chan error, 1)
		locks.Delay(200 * time.Millisecond)
		go func() { extended <- lock.Extend(context.Background(), 2*config.TTL) }()
		time.Sleep(100 * time.Millisecond)
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		now := time.Now()
		if err := <-extended; err != nil || !lock.Until().After(until) {
			t.Fatalf("extended: %v, until %v after %v", err, lock.Until(), until)
		}
		if now.Before(lock.Until()) {
			t.Errorf("Close has returned %v before the end of the validity", lock.Until().Sub(now))
		}
		close(hang)
		<-ended
	})
}

// In memory no change by another client is told: an observer looks every 1.5 s, and when the lock
// can have expired; of its own client's it knows at once.
func TestObserverLooks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		config := redlatch.Config{TTL: time.Second, NodeTimeout: 50 * time.Millisecond}
		locks := New(t, config)
		peer := locks.Peer(config)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		type sight struct {
			label string
			err   error
			at    time.Time
		}
		sights := make(chan sight, 100)
		go func() {
			for holder, err := range locks.Observe(ctx, "a") {
				sights <- sight{holder.Label, err, time.Now()}
			}
			close(sights)
		}()
		expect := func(label string, within time.Duration) {
			t.Helper()
			now := time.Now()
			if s := <-sights; s.err != nil || s.label != label || s.at.Sub(now) > within {
				t.Errorf("%+v after %v, want %q within %v", s, s.at.Sub(now), label, within)
			}
		}
		expect("", 0)
		own, err := locks.TryLock(t.Context(), "a", redlatch.WithLabel("own"))
		if err != nil {
			t.Fatal(err)
		}
		expect("own", 0)
		if err := own.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("", 0)
		if _, err := peer.TryLock(t.Context(), "a", redlatch.WithLabel("peer"), redlatch.WithTTL(10*time.Second), redlatch.WithoutRenewal()); err != nil {
			t.Fatal(err)
		}
		expired := time.Now().Add(10*time.Second + 10*time.Millisecond) // a few round trips more
		expect("peer", 1600*time.Millisecond)
		expect("", time.Until(expired))
		for range 2 { // each time that no quorum answers is told once
			locks.Cut(true)
			if s := <-sights; !errors.Is(s.err, redlatch.ErrNoQuorum) {
				t.Errorf("cut off: %+v", s)
			}
			time.Sleep(time.Minute)
			locks.Cut(false)
			expect("", 1600*time.Millisecond)
		}
		cancel()
		if s, more := <-sights; more {
			t.Errorf("at its end: %+v", s)
		}
	})
}
