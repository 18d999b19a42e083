package redlatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// bidOf waits until one who waits for name has left a bid on s, keeps the server from
// letting it lapse, and returns its holder id.
func bidOf(t *testing.T, s *redistest.Server, name string) (id string) {
	t.Helper()
	await(t, "there is a bid", func() bool {
		for _, key := range bids(t, s, name) {
			do(t, s, "PERSIST", key)
			t.Cleanup(func() { s.Do("DEL", key) })
			_, id, _ = strings.Cut(value(t, s, key), " ")
		}
		return id != ""
	})
	return id
}

func bids(t *testing.T, s *redistest.Server, name string) (keys []string) {
	t.Helper()
	for _, key := range do(t, s, "KEYS", "redlatch:{"+name+"}:bid:*").([]any) {
		keys = append(keys, key.(string))
	}
	return keys
}

// A release gives the lock to the first in line in its own step: who waits asks for
// nothing, and has it for its TTL soon.
func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := sharedOf(t, binary, 1)
		s, name := nodes[0], t.Name()
		proxy := redistest.NewProxy(t, s.Addr())
		c := config(s.URL())
		first, second, third := redlatch.AlwaysGrants(open(t, c)), open(t, through(c, proxy.URL())), open(t, c)
		w := tap(proxy)
		lock := tryLock(t, first, name)
		out := lockIn(within(t, patience), second, name, redlatch.WithLabel("second"))
		bidOf(t, s, name)
		last := lockIn(within(t, patience), third, name)
		awaitStanding(t, nodes, name, 2)
		token, acquires := lock.Token(), w.count("acquire")
		unlock(t, lock)
		if got := value(t, s, name); got == "" {
			t.Error("the lock was free after the release")
		}
		next := lockOf(t, out)
		if next.Token() <= token {
			t.Errorf("token %d follows %d", next.Token(), token)
		}
		if got := value(t, s, name); holderLabel(got) != "second" {
			t.Errorf("the record is of %q", got)
		}
		if got := w.count("acquire"); got != acquires {
			t.Errorf("the next asked %d times", got-acquires)
		}
		await(t, "it has the lock for its TTL", func() bool {
			return remaining(t, s, name) > c.TTL/2 && time.Until(next.Until()) > c.TTL/2
		})
		unlock(t, next)
		unlock(t, lockOf(t, last))
		awaitValue(t, s, name, "")
		if left := standing(t, nodes, name)[0]; left != 0 {
			t.Errorf("%d stand in line", left)
		}
	})
}

// Nothing is granted by a server that may have forgotten: one that does not know the
// script, or lacks the admission.
func TestForgetfulReleaseGrantsNothing(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"script", "admission", "nothing"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			s := redistest.New(t)
			proxy := redistest.NewProxy(t, s.Addr())
			c := config(s.URL())
			c.RestartFence = redlatch.FenceOn
			first := redlatch.AlwaysGrants(open(t, c))
			if err := first.Admit(t.Context(), "n0"); err != nil {
				t.Fatal(err)
			}
			second := open(t, through(c, proxy.URL()))
			lock := tryLock(t, first, "x")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := lockIn(ctx, second, "x")
			bid := bidOf(t, s, "x")
			proxy.HoldBack(redistest.Requests, true) // who waits does not come by itself
			switch lost {
			case "script":
				do(t, s, "SCRIPT", "FLUSH")
			case "admission":
				if do(t, s, "DEL", "redlatch:{"+c.Deployment+"}:admitted") != int64(1) {
					t.Fatal("there was no admission")
				}
			}
			unlock(t, lock)
			want := ""
			if lost == "nothing" {
				want = bid
			}
			if got := value(t, s, "x"); got != want {
				t.Errorf("the record is %q, want %q", got, want)
			}
			cancel()
			<-out
			proxy.HoldBack(redistest.Requests, false)
		})
	}
}

// unheard is a lock over one node that was granted to one who waits, by out, and has not
// heard so; another waits behind, by last.
type unheard struct {
	*redistest.Server
	name, bid string
	config    redlatch.Config
	out, last <-chan outcomeOf
	// lift has all messages go on.
	lift func()
}

// grantUnheard has a lock granted to one who waits till ctx ends, whose messages in one
// direction, or both, are held back.
func grantUnheard(ctx context.Context, t *testing.T, held redistest.Direction) unheard {
	t.Helper()
	nodes := shared(t, 1)
	s, name := nodes[0], t.Name()
	proxy := redistest.NewProxy(t, s.Addr())
	c := config(s.URL())
	first, second, third := redlatch.AlwaysGrants(open(t, c)), open(t, through(c, proxy.URL())), open(t, c)
	lock := tryLock(t, first, name)
	out := lockIn(ctx, second, name)
	bid := bidOf(t, s, name)
	last := lockIn(within(t, patience), third, name)
	awaitStanding(t, nodes, name, 2)
	proxy.HoldBack(held, true)
	unlock(t, lock)
	if got := value(t, s, name); got != bid {
		t.Fatalf("the record is %q, want %q", got, bid)
	}
	return unheard{s, name, bid, c, out, last, func() { proxy.HoldBack(held, false) }}
}

// lockOf returns the lock that comes by out.
func lockOf(t *testing.T, out <-chan outcomeOf) *redlatch.Lock {
	t.Helper()
	o := <-out
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.lock
}

// The message that the lock was granted comes late: most of the time that the record is
// there for is over, and an attempt of its own takes it over.
func TestGrantIsHeardOfLate(t *testing.T) {
	t.Parallel()
	g := grantUnheard(within(t, patience), t, redistest.Replies)
	do(t, g.Server, "PERSIST", g.name)
	time.Sleep(1200 * time.Millisecond) // or longer
	g.lift()
	lock := lockOf(t, g.out)
	if got := value(t, g.Server, g.name); got == g.bid || got == "" {
		t.Errorf("the record is %q", got)
	}
	if left, until := remaining(t, g.Server, g.name), time.Until(lock.Until()); until > left {
		t.Errorf("it is held for %v, and its record stays for %v", until, left)
	}
	unlock(t, lock)
	unlock(t, lockOf(t, g.last))
	awaitValue(t, g.Server, g.name, "")
}

// Who was granted the lock and has gone before it heard so leaves nothing behind, and the
// next has it.
func TestGrantToOneWhoHasGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := grantUnheard(ctx, t, redistest.Replies)
	do(t, g.Server, "PERSIST", g.name) // nothing but a release removes it
	cancel()
	if o := <-g.out; !errors.Is(o.err, context.Canceled) {
		t.Errorf("who has gone got %v", o.err)
	}
	g.lift()
	unlock(t, lockOf(t, g.last))
	awaitValue(t, g.Server, g.name, "")
}

// Who was granted the lock and hears nothing holds the others up for a short time, not
// for its TTL.
func TestGrantToTheHung(t *testing.T) {
	t.Parallel()
	g := grantUnheard(within(t, patience), t, redistest.Both)
	if left, most := remaining(t, g.Server, g.name), g.config.TTL/10+time.Second+g.config.NodeTimeout; left > most || left < most/4 {
		t.Errorf("it is granted for %v, want up to %v", left, most)
	}
	next := lockOf(t, g.last)
	g.lift()
	unlock(t, next)
	hung := lockOf(t, g.out)
	if hung.Token() <= next.Token() {
		t.Errorf("token %d follows %d", hung.Token(), next.Token())
	}
	unlock(t, hung)
}

// A lock that was granted for a short time is detached for its TTL.
func TestGrantedLockIsDetached(t *testing.T) {
	t.Parallel()
	nodes := shared(t, 1)
	s, name := nodes[0], t.Name()
	c := config(s.URL())
	lock := tryLock(t, redlatch.AlwaysGrants(open(t, c)), name)
	client := open(t, c)
	out := lockIn(within(t, patience), client, name)
	bidOf(t, s, name)
	unlock(t, lock)
	id, err := lockOf(t, out).Detach()
	if err != nil {
		t.Fatal(err)
	}
	if left := remaining(t, s, name); left < c.TTL/2 {
		t.Errorf("%v left of %v", left, c.TTL)
	}
	if ok, err := client.Release(t.Context(), name, id); !ok || err != nil {
		t.Error(ok, err)
	}
}

// A lock that is not renewed, or on several nodes, is not to be had for less than its TTL.
func TestNoBid(t *testing.T) {
	t.Parallel()
	for n, options := range map[int][]redlatch.Option{1: {redlatch.WithoutRenewal()}, 3: nil} {
		nodes := shared(t, n)
		name := t.Name() + string(rune('0'+n))
		c := config(redistest.URLs(nodes)...)
		lock := tryLock(t, open(t, c), name)
		out := queueUp(t, nodes, []*redlatch.Client{open(t, c)}, name, 0, options...)[0]
		for _, s := range nodes {
			if keys := bids(t, s, name); len(keys) > 0 {
				t.Errorf("N=%d: %q", n, keys)
			}
		}
		unlock(t, lock)
		next := lockOf(t, out)
		if until := time.Until(next.Until()); until < c.TTL/2 {
			t.Errorf("N=%d: it is held for %v", n, until)
		}
		unlock(t, next)
	}
}
