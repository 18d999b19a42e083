package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// bidOf waits until one who waits for name has left a bid on one of the nodes, keeps that
// from letting it lapse, and returns it and the bid's holder id.
func bidOf(t *testing.T, nodes []*redistest.Server, name string) (keeper int, id string) {
	t.Helper()
	await(t, "there is a bid", func() bool {
		for i, s := range nodes {
			for _, key := range bids(t, s, name) {
				do(t, s, "PERSIST", key)
				t.Cleanup(func() { s.Do("DEL", key) })
				keeper = i
				_, id, _ = strings.Cut(value(t, s, key), " ")
			}
		}
		return id != ""
	})
	return keeper, id
}

func bids(t *testing.T, s *redistest.Server, name string) (keys []string) {
	t.Helper()
	for _, key := range do(t, s, "KEYS", "redlatch:{"+name+"}:bid:*").([]any) {
		keys = append(keys, key.(string))
	}
	return keys
}

// over runs f over one node and over several.
func over(t *testing.T, binary string, f func(t *testing.T, nodes []*redistest.Server, c redlatch.Config)) {
	t.Helper()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := sharedOf(t, binary, n)
			c := config(redistest.URLs(nodes)...)
			c.NodeTimeout /= 2 // an attempt of two steps has its longest time from the bid on
			f(t, nodes, c)
		})
	}
}

// proxied returns a proxy before each of the nodes.
func proxied(t *testing.T, nodes []*redistest.Server) []*redistest.Proxy {
	t.Helper()
	proxies := make([]*redistest.Proxy, len(nodes))
	for i, s := range nodes {
		proxies[i] = redistest.NewProxy(t, s.Addr())
	}
	return proxies
}

// A release gives the lock to the first in line in its own step: who waits asks the node that
// keeps the line for nothing, and has the lock for its TTL soon.
func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) { over(t, binary, releaseGrants) })
}

func releaseGrants(t *testing.T, nodes []*redistest.Server, c redlatch.Config) {
	name, proxies := t.Name(), proxied(t, nodes)
	first, second, third := redlatch.AlwaysGrants(open(t, c)), open(t, through(c, proxyURLs(proxies)...)), open(t, c)
	wires := taps(proxies)
	lock := tryLock(t, first, name)
	out := lockIn(within(t, patience), second, name, redlatch.WithLabel("second"))
	keeper, _ := bidOf(t, nodes, name)
	last := lockIn(within(t, patience), third, name)
	awaitStanding(t, nodes, name, 2)
	token, acquires := lock.Token(), make([]int, len(nodes))
	for i, w := range wires {
		acquires[i] = w.count("acquire")
	}
	unlock(t, lock)
	if got := value(t, nodes[keeper], name); got == "" {
		t.Error("the lock was free after the release")
	}
	next := lockOf(t, out)
	if next.Token() <= token {
		t.Errorf("token %d follows %d", next.Token(), token)
	}
	await(t, "it has the lock for its TTL", func() bool {
		for _, s := range nodes {
			if holderLabel(value(t, s, name)) != "second" || remaining(t, s, name) < c.TTL/2 {
				return false
			}
		}
		return time.Until(next.Until()) > c.TTL/2
	})
	for i, w := range wires {
		want := 1
		if i == keeper {
			want = 0
		}
		if got := w.count("acquire") - acquires[i]; got != want {
			t.Errorf("the next asked node %d %d times, want %d", i, got, want)
		}
	}
	unlock(t, next)
	unlock(t, lockOf(t, last))
	for i, s := range nodes {
		awaitValue(t, s, name, "")
		if left := standing(t, nodes, name)[i]; left != 0 {
			t.Errorf("%d stand in line", left)
		}
	}
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
			_, bid := bidOf(t, []*redistest.Server{s}, "x")
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

// unheard is a lock that was granted to one who waits, by out, and has not heard so; another
// waits behind, by last. Server is the node that keeps the line.
type unheard struct {
	*redistest.Server
	name, bid string
	out, last <-chan outcomeOf
	// lift has all messages go on.
	lift func()
}

// grantUnheard has a lock granted to one who waits till ctx ends, whose messages in one
// direction, or both, are held back.
func grantUnheard(ctx context.Context, t *testing.T, nodes []*redistest.Server, c redlatch.Config, held redistest.Direction) unheard {
	t.Helper()
	name, proxies := t.Name(), proxied(t, nodes)
	holdBack := func(on bool) {
		for _, p := range proxies {
			p.HoldBack(held, on)
		}
	}
	first, second, third := redlatch.AlwaysGrants(open(t, c)), open(t, through(c, proxyURLs(proxies)...)), open(t, c)
	lock := tryLock(t, first, name)
	out := lockIn(ctx, second, name)
	keeper, bid := bidOf(t, nodes, name)
	last := lockIn(within(t, patience), third, name)
	awaitStanding(t, nodes, name, 2)
	holdBack(true)
	unlock(t, lock)
	if got := value(t, nodes[keeper], name); got != bid {
		t.Fatalf("the record is %q, want %q", got, bid)
	}
	return unheard{nodes[keeper], name, bid, out, last, func() { holdBack(false) }}
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
	over(t, flavors(t)[0], isHeardOfLate)
}

func isHeardOfLate(t *testing.T, nodes []*redistest.Server, c redlatch.Config) {
	g := grantUnheard(within(t, patience), t, nodes, c, redistest.Replies)
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
	over(t, flavors(t)[0], grantToOneWhoHasGone)
}

func grantToOneWhoHasGone(t *testing.T, nodes []*redistest.Server, c redlatch.Config) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := grantUnheard(ctx, t, nodes, c, redistest.Replies)
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
	over(t, flavors(t)[0], grantToTheHung)
}

func grantToTheHung(t *testing.T, nodes []*redistest.Server, c redlatch.Config) {
	g := grantUnheard(within(t, patience), t, nodes, c, redistest.Both)
	if left, most := remaining(t, g.Server, g.name), c.TTL/10+time.Second+c.NodeTimeout; left > most || left < most/4 {
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
	over(t, flavors(t)[0], isDetached)
}

func isDetached(t *testing.T, nodes []*redistest.Server, c redlatch.Config) {
	name := t.Name()
	lock := tryLock(t, redlatch.AlwaysGrants(open(t, c)), name)
	client := open(t, c)
	out := lockIn(within(t, patience), client, name)
	keeper, _ := bidOf(t, nodes, name)
	unlock(t, lock)
	id, err := lockOf(t, out).Detach()
	if err != nil {
		t.Fatal(err)
	}
	if left := remaining(t, nodes[keeper], name); left < c.TTL/2 {
		t.Errorf("%v left of %v", left, c.TTL)
	}
	if ok, err := client.Release(t.Context(), name, id); !ok || err != nil {
		t.Error(ok, err)
	}
}

// A lock that is not renewed is not to be had for less than its TTL.
func TestNoBid(t *testing.T) {
	t.Parallel()
	over(t, flavors(t)[0], func(t *testing.T, nodes []*redistest.Server, c redlatch.Config) {
		name := t.Name()
		lock := tryLock(t, open(t, c), name)
		out := queueUp(t, nodes, []*redlatch.Client{open(t, c)}, name, 0, redlatch.WithoutRenewal())[0]
		for _, s := range nodes {
			if keys := bids(t, s, name); len(keys) > 0 {
				t.Errorf("there are bids: %q", keys)
			}
		}
		unlock(t, lock)
		next := lockOf(t, out)
		if until := time.Until(next.Until()); until < c.TTL/2 {
			t.Errorf("it is held for %v", until)
		}
		unlock(t, next)
	})
}

// A lock that a release granted is extended before its guard begins, also where what is left
// of the bid is not short of a step of its own.
func TestGrantedLockIsRenewedBeforeItsGuard(t *testing.T) {
	t.Parallel()
	over(t, flavors(t)[0], func(t *testing.T, nodes []*redistest.Server, c redlatch.Config) {
		name := t.Name()
		c.NodeTimeout = 200 * time.Millisecond
		first, second := redlatch.AlwaysGrants(open(t, c)), open(t, c)
		lock := tryLock(t, first, name)
		out := lockIn(within(t, patience), second, name, redlatch.WithTTL(2*time.Second), redlatch.WithGuard(time.Second))
		awaitStanding(t, nodes, name, 1)
		time.Sleep(400 * time.Millisecond) // the bid is good for half a second
		unlock(t, lock)
		next := lockOf(t, out)
		for start := time.Now(); time.Since(start) < 1500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			if err := next.Err(); err != nil {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
		}
		unlock(t, next)
	})
}
