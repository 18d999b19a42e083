package locking

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// observed opens a client that is observed, of n shared nodes.
func observed(t *testing.T, n int) (*redlatch.Client, *locktest.Events, redlatch.Config) {
	t.Helper()
	events := new(locktest.Events)
	c := locktest.Config(redistest.URLs(locktest.Shared(t, n))...)
	watched := c
	watched.Observer = events
	client := locktest.Open(t, watched)
	events.Client.Store(client)
	return client, events, c
}

// expectKinds expects the events of these types alone, beside those of a busy machine.
func expectKinds(t *testing.T, events *locktest.Events, want string) {
	t.Helper()
	busy := regexp.MustCompile(`\b(Node\w+|LockFailed|LockNotExtended) ?`)
	if got := strings.TrimSpace(busy.ReplaceAllString(events.Kinds(), "")); got != want {
		t.Errorf("observed %q, want %q", events.Kinds(), want)
	}
}

// traceKey is the key of a value in the ctx of a call.
type traceKey struct{}

// A lock is observed from its grant to its release, with how long each took, and with the values
// of the caller's ctx.
func TestObserverOfALock(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			client, events, _ := observed(t, n)
			start := time.Now()
			ctx := context.WithValue(locktest.Within(t, locktest.Patience), traceKey{}, "here")
			lock, err := client.Lock(ctx, t.Name())
			if err != nil {
				t.Fatal(err)
			}
			granted := time.Since(start)
			if err := lock.Extend(ctx, 15*time.Second); err != nil {
				t.Fatal(err)
			}
			storm.Rest(ctx, 20*time.Millisecond)
			locktest.Unlock(t, lock)
			whole := time.Since(start)

			expectKinds(t, events, "LockAcquired LockExtended LockReleased")
			for i, value := range events.Values(traceKey{}) {
				if value != "here" {
					t.Errorf("ctx of event %d has %v", i, value)
				}
			}
			a := locktest.EventsOf[redlatch.LockAcquired](events)[0]
			if a.Name != t.Name() || a.Token != lock.Token() || a.Tries < 1 || a.RoundTrip <= 0 || a.RoundTrip > a.Waited || a.Waited > granted {
				t.Errorf("%+v, granted within %v", a, granted)
			}
			if e := locktest.EventsOf[redlatch.LockExtended](events)[0]; e.Name != t.Name() || e.Token != lock.Token() || !e.Until.Equal(lock.Until()) {
				t.Errorf("%+v, until %v", e, lock.Until())
			}
			if r := locktest.EventsOf[redlatch.LockReleased](events)[0]; r.Name != t.Name() || r.Token != lock.Token() || r.Held < 20*time.Millisecond || r.Held > whole-a.Waited || r.Err != nil {
				t.Errorf("%+v, in %v altogether", r, whole)
			}
		})
	}
}

// A call that does not get its lock is observed with what it returns, unless its arguments are
// refused.
func TestObserverOfFailures(t *testing.T) {
	t.Parallel()
	client, events, c := observed(t, 3)
	held := locktest.TryLock(t, locktest.Open(t, c), t.Name())

	ctx, cancel := context.WithCancel(t.Context())
	report, waits := locktest.WhenWaiting(nil)
	cancelled := locktest.LockIn(ctx, client, t.Name(), report)
	<-waits
	cancel()
	report, waits = locktest.WhenWaiting(nil)
	outs := []error{(<-cancelled).Err}
	closed := locktest.LockIn(t.Context(), client, t.Name(), report)
	<-waits
	_, err := locktest.TryInTime(t, client, t.Name())
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	outs = append(outs, err, (<-closed).Err)

	failures := locktest.EventsOf[redlatch.LockFailed](events)
	for i, want := range []error{context.Canceled, redlatch.ErrHeld, redlatch.ErrClosed} {
		var f redlatch.LockFailed
		for _, one := range failures {
			if one.Err == outs[i] {
				f = one
			}
		}
		if !errors.Is(outs[i], want) || f.Name != t.Name() || f.Tries < 1 || f.Waited <= 0 {
			t.Errorf("%v is observed as %+v", outs[i], f)
		}
	}
	if strings.Contains(events.Kinds(), "LockAcquired") {
		t.Errorf("observed %q", events.Kinds())
	}
	locktest.Unlock(t, held)

	before := events.Kinds()
	for name, err := range map[string]error{
		"no name": locktest.ErrorOf(client.TryLock(t.Context(), "")),
		"no TTL":  locktest.ErrorOf(client.TryLock(t.Context(), t.Name(), redlatch.WithTTL(-1))),
		"closed":  locktest.ErrorOf(client.TryLock(t.Context(), t.Name())),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if after := events.Kinds(); after != before {
		t.Errorf("observed %q, and then %q", before, after)
	}
}

// A caller that waits in this process is granted the lock by the attempt of the one before it, and
// has made none; or by a transfer, which is an attempt.
func TestObserverOfTheNextCaller(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ttl  time.Duration
		own  bool
	}{{"same TTL", blockTTL, false}, {"another TTL", blockTTL / 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			events := new(locktest.Events)
			config := locktest.Config(redistest.URLs(locktest.Shared(t, 3))...)
			config.MaxTTL, config.Observer = blockTTL, events
			client := locktest.Open(t, config)
			// The attempt of the one behind the first takes tokens for those behind it.
			lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(blockTTL))
			var outs []<-chan locktest.Outcome
			for _, ttl := range []time.Duration{blockTTL, c.ttl} {
				report, waits := locktest.WhenWaiting(nil)
				outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), report, redlatch.WithTTL(ttl)))
				<-waits
			}
			for _, out := range outs {
				locktest.Unlock(t, lock)
				o := <-out
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				lock = o.Lock
			}
			locktest.Unlock(t, lock)
			acquired := locktest.EventsOf[redlatch.LockAcquired](events)
			a := acquired[len(acquired)-1]
			if a.Token != lock.Token() || (a.Tries > 0) != c.own || (a.RoundTrip > 0) != c.own || a.Waited <= a.RoundTrip {
				t.Errorf("%+v", a)
			}
			if released := locktest.EventsOf[redlatch.LockReleased](events); len(acquired) != 3 || len(released) != 3 {
				t.Errorf("observed %q", events.Kinds())
			}
		})
	}
}

// A lock ends once, however it ends.
func TestObserverOfTheEnd(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	removedByHand := func(t *testing.T, lock *redlatch.Lock) {
		locktest.AwaitOn(t, lock, nodes...)
		for _, s := range nodes {
			locktest.Do(t, s, "DEL", lock.Name())
		}
	}
	for _, c := range []struct {
		name string
		end  func(t *testing.T, client *redlatch.Client, lock *redlatch.Lock) error
		kind string
		want error // of the event
	}{
		{"twice", func(t *testing.T, _ *redlatch.Client, lock *redlatch.Lock) error {
			locktest.Unlock(t, lock)
			return lock.Unlock(t.Context())
		}, "LockAcquired LockReleased", nil},
		{"Close", func(_ *testing.T, client *redlatch.Client, _ *redlatch.Lock) error { return client.Close() }, "LockAcquired LockReleased", nil},
		{"Detach", func(t *testing.T, _ *redlatch.Client, lock *redlatch.Lock) error {
			removed(t, nodes, lock.Name())
			return locktest.ErrorOf(lock.Detach())
		}, "LockAcquired LockReleased", nil},
		{"found gone by the release", func(t *testing.T, _ *redlatch.Client, lock *redlatch.Lock) error {
			removedByHand(t, lock)
			return lock.Unlock(t.Context())
		}, "LockAcquired LockReleased", redlatch.ErrLost},
		{"found gone by an extension", func(t *testing.T, _ *redlatch.Client, lock *redlatch.Lock) error {
			removedByHand(t, lock)
			locktest.Await(t, "it is found", func() bool { return lock.Extend(t.Context(), time.Second) != nil && lock.Err() != nil })
			return lock.Unlock(t.Context())
		}, "LockAcquired LockLost", redlatch.ErrLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, events, _ := observed(t, 3)
			lock := locktest.TryLock(t, client, t.Name())
			err := c.end(t, client, lock)
			client.Close()
			expectKinds(t, events, c.kind)
			for _, r := range locktest.EventsOf[redlatch.LockReleased](events) {
				if r.Held <= 0 || c.want == nil && r.Err != nil && !locktest.Late(r.Err) || c.want != nil && (r.Err != err || !errors.Is(err, c.want)) {
					t.Errorf("%+v, and %v was returned", r, err)
				}
			}
			for _, l := range locktest.EventsOf[redlatch.LockLost](events) {
				if !l.Gone || l.Err != lock.Err() || !errors.Is(l.Err, c.want) || l.Held <= 0 || l.Token != lock.Token() {
					t.Errorf("%+v, and %v was returned", l, err)
				}
			}
		})
	}
}

// A lock whose nodes do not answer is not extended, and lost when its validity is over; so is one
// at its MaxHold, for which the nodes are not asked.
func TestObserverOfALoss(t *testing.T) {
	t.Parallel()
	for _, maxHold := range []bool{false, true} {
		t.Run(fmt.Sprintf("MaxHold=%t", maxHold), func(t *testing.T) {
			t.Parallel()
			events := new(locktest.Events)
			proxies := redistest.Proxies(t, locktest.Shared(t, 3))
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			c.Observer, c.NodeTimeout = events, 50*time.Millisecond
			client := locktest.Open(t, c)
			events.Client.Store(client)
			options := []redlatch.Option{redlatch.WithTTL(3 * time.Second)} // renewed several times, also beside other work
			if maxHold {
				options = append(options, redlatch.WithMaxHold(time.Millisecond))
			}
			lock := locktest.TryLock(t, client, t.Name(), options...)
			if !maxHold {
				for _, p := range proxies {
					p.HoldBack(redistest.Both, true)
				}
			}
			<-lock.Context().Done()
			locktest.Await(t, "it is observed", func() bool { return len(locktest.EventsOf[redlatch.LockLost](events)) > 0 })
			for _, p := range proxies {
				p.HoldBack(redistest.Both, false)
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Error(err)
			}
			client.Close()
			lost, missed := locktest.EventsOf[redlatch.LockLost](events), locktest.EventsOf[redlatch.LockNotExtended](events)
			if l := lost[0]; len(lost) != 1 || l.Gone || l.Err != lock.Err() || errors.Is(l.Err, redlatch.ErrMaxHold) != maxHold || l.Held <= 0 {
				t.Errorf("%+v", lost)
			}
			if got := len(locktest.EventsOf[redlatch.LockReleased](events)); got > 0 {
				t.Errorf("released besides: %q", events.Kinds())
			}
			if (len(missed) == 0) != maxHold {
				t.Errorf("observed %q", events.Kinds())
			}
			for _, m := range missed {
				if !errors.Is(m.Err, redlatch.ErrNoQuorum) || m.Token != lock.Token() || m.Until.After(lock.Until()) {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}
