package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// term is one term of a leader, as seen by itself.
type term struct {
	machine string
	lock    *redlatch.Lock
	// began is when the work did. ended is closed when it is about to return, at end, because of cause.
	began, end time.Time
	ended      chan struct{}
	cause      error
}

// candidate campaigns until the test is over, or stop is called: its work returns when its ctx is done.
func candidate(t *testing.T, client *redlatch.Client, machine string, terms chan<- *term, options ...redlatch.Option) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		err := client.Campaign(ctx, t.Name(), func(ctx context.Context) error {
			lock, _ := redlatch.Held(ctx, t.Name())
			now := &term{machine: machine, lock: lock, began: time.Now(), ended: make(chan struct{})}
			terms <- now
			<-ctx.Done()
			now.cause, now.end = context.Cause(ctx), time.Now()
			close(now.ended)
			return now.cause
		}, options...)
		// A busy machine's may be lost before it is stopped.
		if !errors.Is(err, context.Canceled) && !(ctx.Err() != nil && errors.Is(err, redlatch.ErrLost)) {
			t.Errorf("%s: %v", machine, err)
		}
	})
	stop = func() { cancel(); over.Wait() }
	t.Cleanup(stop)
	return stop
}

// terms are those of all candidates, in order.
type terms struct {
	t    *testing.T
	of   chan *term
	last *term
}

// await returns the next term of a machine, and checks that each one began under a larger token,
// and when the work of the one before had returned or its validity was over.
func (s *terms) await(machine string) *term {
	s.t.Helper()
	for deadline := time.After(locktest.Patience); ; {
		select {
		case next := <-s.of:
			if before := s.last; before != nil {
				if next.lock.Token() <= before.lock.Token() {
					s.t.Errorf("term %d of %s follows %d of %s", next.lock.Token(), next.machine, before.lock.Token(), before.machine)
				}
				<-before.ended
				if next.began.Before(before.end) && next.began.Before(before.lock.Until()) {
					s.t.Errorf("%s leads %v before the end of the term of %s", next.machine, before.lock.Until().Sub(next.began), before.machine)
				}
			}
			if s.last = next; next.machine == machine {
				return next
			}
		case <-deadline:
			s.t.Fatalf("%s does not lead", machine)
		}
	}
}

// A leader is cut off: its work is told by its own clock, another leads only then, and there is no
// second leader when the network is back. Nothing of the old term is renewed any more, and the old
// leader is a candidate again.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			wires := locktest.Taps(proxies)
			c := locktest.Config(redistest.URLs(nodes)...)
			c.TTL = 3 * time.Second
			all := &terms{t: t, of: make(chan *term, 100)}
			candidate(t, locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)), "a", all.of)
			first := all.await("a")
			stopB := candidate(t, locktest.Open(t, c), "b", all.of)
			for _, p := range proxies[:n/2+1] {
				p.BlackHole(redistest.Both, true)
			}
			if <-first.ended; !errors.Is(first.cause, redlatch.ErrLost) {
				t.Errorf("the first leader's ctx ended by %v", first.cause)
			}
			second := all.await("b")
			renewals := func() (sum int) {
				for _, w := range wires {
					sum += w.Count("extend")
				}
				return sum
			}
			before := renewals()
			for _, p := range proxies {
				p.BlackHole(redistest.Both, false)
			}
			// It leads on past the time in which the old leader would have come back by a flag.
			until := second.lock.Until()
			locktest.Await(t, "the second leader goes on", func() bool { return second.lock.Until().Sub(until) > c.TTL || second.lock.Err() != nil })
			if err := first.lock.Err(); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("the first leader's lock is %v", err)
			}
			if second.lock.Err() == nil {
				if after := renewals(); after != before {
					t.Errorf("renewed %d times after the loss", after-before)
				}
			}
			stopB()
			all.await("a")
		})
	}
}

// The work goes on after the loss, of which it was told: the lost lead is not renewed, others have
// the lock meanwhile, and the same candidate leads again only when the work has returned.
func TestWorkThatIgnoresTheLoss(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	wires := locktest.Taps(proxies)
	c := locktest.Config(redistest.URLs(nodes)...)
	other := locktest.Open(t, c)
	c.TTL = 2 * time.Second
	deaf := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
	began, ended := make(chan context.Context, 10), make(chan error, 1)
	returns, terms := make(chan struct{}), 0
	go func() {
		ended <- deaf.Campaign(locktest.Within(t, 2*locktest.Patience), t.Name(), func(ctx context.Context) error {
			began <- ctx
			if terms++; terms == 1 {
				<-returns
				return ctx.Err()
			}
			return nil
		})
	}()
	first := <-began
	lost, _ := redlatch.Held(first, t.Name())
	for _, p := range proxies[:2] {
		p.BlackHole(redistest.Both, true)
	}
	<-first.Done()
	lock, err := other.Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proxies {
		p.BlackHole(redistest.Both, false)
	}
	renewals := wires[0].Count("extend") + wires[1].Count("extend") + wires[2].Count("extend")
	locktest.Unlock(t, lock)
	for range 3 { // for a TTL at least, with its old network back
		lock = locktest.TryLock(t, other, t.Name())
		select {
		case <-began:
			t.Fatal("it leads again, while its work runs")
		case <-time.After(c.TTL / 3):
		}
		if err := lost.Err(); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("the lost lead is %v", err)
		}
		locktest.Unlock(t, lock)
	}
	if after := wires[0].Count("extend") + wires[1].Count("extend") + wires[2].Count("extend"); after != renewals {
		t.Errorf("renewed %d times after the loss", after-renewals)
	}
	close(returns)
	second := <-began
	if again, ok := redlatch.Held(second, t.Name()); ok && again.Token() <= lock.Token() {
		t.Errorf("term %d follows %d", again.Token(), lock.Token())
	}
	if err := <-ended; err != nil && !locktest.Late(err) {
		t.Error(err)
	}
}

// A candidate's place in the queue is gone, with its connection: it is a candidate all the same,
// and no phantom of it stands in the way of others.
func TestCandidateIsForgotten(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(redistest.URLs(nodes)...)
			leader := locktest.Open(t, c)
			lock := locktest.TryLock(t, leader, t.Name())
			all := &terms{t: t, of: make(chan *term, 100)}
			report, waits := locktest.WhenWaiting(nil)
			stop := candidate(t, locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)), "a", all.of, report)
			<-waits
			side := func(kind string) string { return "redlatch:{" + t.Name() + "}:" + kind + ":" + t.Name() }
			locktest.Await(t, "it is in the queue", func() bool {
				for _, s := range nodes {
					if locktest.Do(t, s, "ZCARD", side("queue")).(int64) > 0 {
						return true
					}
				}
				return false
			})
			for i, s := range nodes {
				proxies[i].Cut()
				locktest.Do(t, s, "DEL", side("queue"), side("heartbeats"), side("next"))
			}
			locktest.Unlock(t, lock)
			all.await("a")
			// It goes while it leads, and nothing of it is left.
			stop()
			for _, s := range nodes {
				locktest.Await(t, "its key is gone", func() bool { return locktest.Value(t, s, t.Name()) == "" })
			}
			next, err := leader.Lock(locktest.Within(t, locktest.Patience), t.Name())
			if err != nil {
				t.Fatal(err)
			}
			locktest.Unlock(t, next)
		})
	}
}
