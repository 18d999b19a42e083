package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// A holder hands over to the next caller of its process in one step on each
// node: nobody comes between, and the records are the next one's.
func TestHandOver(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3, 5} {
			nodes := sharedOf(t, binary, n)
			proxies := redistest.Proxies(t, nodes)
			wires := taps(proxies)
			client := open(t, config(proxyURLs(proxies)...))
			name := fmt.Sprintf("%s/%d", t.Name(), n)
			lock := tryLock(t, client, name)
			for _, s := range nodes {
				await(t, "all nodes have it", func() bool { return value(t, s, name) != "" })
			}
			const callers = 10
			var outs []<-chan outcomeOf
			for k := range callers {
				report, waits := waiting(nil)
				outs = append(outs, lockIn(within(t, patience), client, name, report, redlatch.WithLabel(fmt.Sprint("caller", k)), redlatch.WithTTL(time.Duration(10+k)*time.Second)))
				<-waits
			}
			for k, out := range outs {
				before := lock
				unlock(t, before)
				o := <-out
				if o.err != nil {
					t.Fatal(o.err)
				}
				lock = o.lock
				if lock.Token() <= before.Token() || before.Err() == nil {
					t.Errorf("token %d follows %d, which is %v", lock.Token(), before.Token(), before.Err())
				}
				for _, s := range nodes {
					await(t, "all nodes have the next one's", func() bool {
						return remaining(t, s, name) > 0 && holderLabel(value(t, s, name)) == fmt.Sprint("caller", k)
					})
					if left, ttl := remaining(t, s, name), time.Duration(10+k)*time.Second; left > ttl || left < ttl/2 {
						t.Errorf("%v left of %v", left, ttl)
					}
				}
			}
			for _, w := range wires {
				w.checkOnce(t, "acquire")
				if got := w.count("acquire"); got != callers+1 {
					t.Errorf("N=%d: %d acquired in %d steps", n, callers+1, got)
				}
				if got := w.count("release"); got != 0 {
					t.Errorf("N=%d: %d releases", n, got)
				}
			}
			unlock(t, lock)
			for _, s := range nodes {
				awaitValue(t, s, name, "")
			}
		}
	})
}

// holderLabel is the label in a holder id.
func holderLabel(id string) string {
	for range 2 {
		for i := range id {
			if id[i] == '.' {
				id = id[i+1:]
				break
			}
		}
	}
	return id
}

// The answer to a hand-over is lost, on so many nodes that there is no quorum:
// the next caller has the lock all the same, long before a TTL is over, and
// nothing is left when it has gone.
func TestReplyToHandOverIsLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for what, how := range losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, what), func(t *testing.T) {
				t.Parallel()
				nodes := shared(t, n)
				proxies := redistest.Proxies(t, nodes)
				client := open(t, config(proxyURLs(proxies)...))
				lock := tryLock(t, client, t.Name())
				report, waits := waiting(nil)
				out := lockIn(within(t, patience), client, t.Name(), report)
				<-waits
				for _, p := range proxies[:n/2+1] {
					w := tap(p)
					w.lose("acquire", how)
				}
				gate := &turnstile{t: t}
				gate.enter(lock, "first")
				gate.leave(lock)
				err := lock.Unlock(t.Context())
				t.Logf("the unlock: %v", err)
				if errors.Is(err, redlatch.ErrLost) {
					t.Errorf("it was held when it was released: %v", err)
				}
				// A connection that lost a reply stays silent.
				for _, p := range proxies {
					p.Cut()
				}
				o := <-out
				if o.err != nil {
					t.Fatal(o.err)
				}
				gate.pass(o.lock, "second")
				for _, s := range nodes {
					awaitValue(t, s, t.Name(), "")
				}
			})
		}
	}
}

// The lock was lost under its holder, or deleted on the nodes: what is handed
// over then is not held by two.
func TestHandOverOfALostLock(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for what, lose := range map[string]func(s *redistest.Server, name string){
			"deleted":   func(s *redistest.Server, name string) { do(t, s, "DEL", name) },
			"another's": func(s *redistest.Server, name string) { do(t, s, "SET", name, "theirs", "PX", "300") },
		} {
			nodes := shared(t, n)
			client := open(t, config(redistest.URLs(nodes)...))
			name := fmt.Sprintf("%s/%s/%d", t.Name(), what, n)
			lock := tryLock(t, client, name, redlatch.WithoutRenewal())
			report, waits := waiting(nil)
			out := lockIn(within(t, patience), client, name, report)
			<-waits
			for _, s := range nodes {
				await(t, "all nodes have it", func() bool { return value(t, s, name) != "" })
				lose(s, name)
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("%s, N=%d: unlock: %v", what, n, err)
			}
			o := <-out
			if o.err != nil {
				t.Fatal(o.err)
			}
			if o.lock.Token() <= lock.Token() {
				t.Errorf("token %d follows %d", o.lock.Token(), lock.Token())
			}
			if what == "another's" {
				for _, s := range nodes {
					await(t, "theirs has run out everywhere", func() bool { return value(t, s, name) != "theirs" })
				}
			}
			unlock(t, o.lock)
		}
	}
}

// A holder's validity runs out while callers of its own process wait behind it.
func TestCallersBehindALostLock(t *testing.T) {
	t.Parallel()
	nodes := shared(t, 3)
	client := open(t, config(redistest.URLs(nodes)...))
	first := tryLock(t, client, t.Name(), redlatch.WithTTL(300*time.Millisecond), redlatch.WithoutRenewal())
	outs := make([]<-chan outcomeOf, 5)
	for i := range outs {
		outs[i] = lockIn(within(t, patience), client, t.Name())
	}
	gate := &turnstile{t: t}
	gate.enter(first, "first")
	passAll(t, gate, outs)
	if first.Err() == nil {
		t.Error("the first is held still")
	}
	awaitQueued(t, nodes, t.Name(), 0)
}

// Callers change their mind while the lock is handed to them.
func TestCancelledDuringHandOver(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	for _, n := range []int{1, 3} {
		nodes := shared(t, n)
		client := open(t, config(redistest.URLs(nodes)...))
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		gate := &turnstile{t: t}
		var group sync.WaitGroup
		for i := range 16 {
			rng := rand.New(rand.NewPCG(base, uint64(i)))
			group.Go(func() {
				for range 40 {
					d := time.Duration(rng.Int64N(int64(8 * time.Millisecond)))
					ctx, cancel := context.WithTimeout(t.Context(), d)
					lock, err := client.Lock(ctx, name)
					cancel()
					if err == nil {
						gate.pass(lock, fmt.Sprint(i))
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		t.Logf("N=%d: %d had it", n, gate.passed())
		awaitQueued(t, nodes, name, 0)
		lock, err := client.Lock(within(t, patience), name)
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, lock)
		for _, s := range nodes {
			awaitValue(t, s, name, "")
		}
	}
}

// A client is closed while its callers wait behind one another and behind
// others: all learn of it, and the lock goes on to the others.
func TestCloseEndsTheWaitingOfAll(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := shared(t, n)
		c := config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		for _, holds := range []bool{true, false} {
			closing, other := open(t, c), open(t, c)
			holder := other
			if holds {
				holder = closing
			}
			first := tryLock(t, holder, name)
			outs := make([]<-chan outcomeOf, 10)
			for i := range outs {
				report, waits := waiting(nil)
				outs[i] = lockIn(within(t, patience), closing, name, report)
				<-waits
			}
			next := lockIn(within(t, patience), other, name)
			if !holds {
				awaitQueued(t, nodes, name, 1)
			}
			if err := closing.Close(); err != nil {
				t.Error(err)
			}
			for _, out := range outs {
				if o := <-out; !errors.Is(o.err, redlatch.ErrClosed) {
					t.Errorf("%v, %v", o.lock, o.err)
				}
			}
			if !holds {
				unlock(t, first)
			}
			o := <-next
			if o.err != nil {
				t.Fatal(o.err)
			}
			unlock(t, o.lock)
			awaitQueued(t, nodes, name, 0)
		}
	}
}
