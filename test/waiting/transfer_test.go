package waiting

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// A holder transfers its lock to the next caller of its process in one step on each
// node: nobody comes between, and the keys are the next one's.
func TestTransfer(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3, 5} {
			// What a busy machine's nodes answer too late is released and acquired, but not each time.
			for round := 0; ; round++ {
				more := transfers(t, locktest.SharedOf(t, binary, n), fmt.Sprintf("%s/%d/%d", t.Name(), n, round))
				if more == "" {
					break
				}
				if round == 20 {
					t.Errorf("N=%d: %s", n, more)
					break
				}
			}
		}
	})
}

// transfers has a lock go through callers of one client, and says what took more steps than it should.
func transfers(t *testing.T, nodes []*redistest.Server, name string) (more string) {
	t.Helper()
	proxies := redistest.Proxies(t, nodes)
	wires := locktest.Taps(proxies)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	lock := locktest.TryLock(t, client, name)
	locktest.AwaitOn(t, lock, nodes...)
	const callers = 10
	given := locktest.Within(t, callers*locktest.Patience) // each waits for those before
	var outs []<-chan locktest.Outcome
	for k := range callers {
		report, waits := locktest.WhenWaiting(nil)
		outs = append(outs, locktest.LockIn(given, client, name, report, redlatch.WithLabel(fmt.Sprint("caller", k)), redlatch.WithTTL(time.Duration(50+k)*time.Second)))
		<-waits
	}
	for k, out := range outs {
		before := lock
		locktest.Unlock(t, before)
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		lock = o.Lock
		if lock.Token() <= before.Token() || before.Err() == nil {
			t.Errorf("token %d follows %d, which is %v", lock.Token(), before.Token(), before.Err())
		}
		for _, s := range nodes {
			locktest.Await(t, "all nodes have the next one's", func() bool {
				return locktest.Remaining(t, s, name) > 0 && holderLabel(locktest.Value(t, s, name)) == fmt.Sprint("caller", k)
			})
			if left, ttl := locktest.Remaining(t, s, name), time.Duration(50+k)*time.Second; left > ttl || left < ttl-locktest.Patience {
				t.Errorf("%v left of %v", left, ttl)
			}
		}
	}
	for _, w := range wires {
		w.CheckOnce(t, "acquire")
		acquired, released := w.Count("acquire"), w.Count("release")
		if acquired != callers+1 || released != 0 {
			more = fmt.Sprintf("%d acquired in %d steps, and %d releases", callers+1, acquired, released)
		}
	}
	locktest.Unlock(t, lock)
	for _, s := range nodes {
		locktest.AwaitValue(t, s, name, "")
	}
	return more
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

// The answer to a transfer is lost, on so many nodes that there is no quorum:
// the next caller has the lock all the same, long before a TTL is over, and
// nothing is left when it has gone.
func TestReplyToTransferIsLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for what, how := range locktest.Losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, what), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, n)
				proxies := redistest.Proxies(t, nodes)
				client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
				lock := locktest.TryLock(t, client, t.Name())
				report, waits := locktest.WhenWaiting(nil)
				out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), report)
				<-waits
				for _, p := range proxies[:n/2+1] {
					w := locktest.Tap(p)
					w.Lose("acquire", how)
				}
				gate := &locktest.Turnstile{T: t}
				gate.Enter(lock, "first")
				gate.Leave(lock)
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
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				gate.Pass(o.Lock, "second")
				for _, s := range nodes {
					locktest.AwaitValue(t, s, t.Name(), "")
				}
			})
		}
	}
}

// The lock was lost under its holder, or deleted on the nodes: what is transferred
// then is not held by two.
func TestTransferOfALostLock(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for what, lose := range map[string]func(s *redistest.Server, name string){
			"deleted":   func(s *redistest.Server, name string) { locktest.Do(t, s, "DEL", name) },
			"another's": func(s *redistest.Server, name string) { locktest.Do(t, s, "SET", name, "theirs", "PX", "300") },
		} {
			nodes := locktest.Shared(t, n)
			client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
			name := fmt.Sprintf("%s/%s/%d", t.Name(), what, n)
			lock := locktest.TryLock(t, client, name, redlatch.WithoutRenewal())
			report, waits := locktest.WhenWaiting(nil)
			out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, name, report)
			<-waits
			locktest.AwaitOn(t, lock, nodes...)
			for _, s := range nodes {
				lose(s, name)
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) && !locktest.Late(err) {
				t.Errorf("%s, N=%d: unlock: %v", what, n, err)
			}
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if o.Lock.Token() <= lock.Token() {
				t.Errorf("token %d follows %d", o.Lock.Token(), lock.Token())
			}
			if what == "another's" {
				for _, s := range nodes {
					locktest.Await(t, "theirs has run out everywhere", func() bool { return locktest.Value(t, s, name) != "theirs" })
				}
			}
			locktest.Unlock(t, o.Lock)
		}
	}
}

// A holder's validity runs out while callers of its own process wait behind it.
func TestCallersBehindALostLock(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	first := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(300*time.Millisecond), redlatch.WithoutRenewal())
	outs := make([]<-chan locktest.Outcome, 5)
	for i := range outs {
		outs[i] = locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name())
	}
	gate := &locktest.Turnstile{T: t}
	gate.Enter(first, "first")
	passAll(t, gate, outs)
	if first.Err() == nil {
		t.Error("the first is held still")
	}
	awaitQueued(t, nodes, t.Name(), 0)
}

// Callers change their mind while the lock is transferred to them.
func TestCancelledDuringTransfer(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		gate := &locktest.Turnstile{T: t}
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
						gate.Enter(lock, fmt.Sprint(i)) // for no time: a wait is over before that
						gate.Leave(lock)
						lock.Unlock(t.Context())
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		t.Logf("N=%d: %d had it", n, gate.Passed())
		awaitQueued(t, nodes, name, 0)
		lock, err := client.Lock(locktest.Within(t, locktest.Patience), name)
		if err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, lock)
		for _, s := range nodes {
			locktest.AwaitValue(t, s, name, "")
		}
	}
}

// A client is closed while its callers wait behind one another and behind
// others: all learn of it, and the lock goes on to the others.
func TestCloseEndsTheWaitingOfAll(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		for _, holds := range []bool{true, false} {
			closing, other := locktest.Open(t, c), locktest.Open(t, c)
			holder := other
			if holds {
				holder = closing
			}
			first := locktest.TryLock(t, holder, name)
			outs := make([]<-chan locktest.Outcome, 10)
			for i := range outs {
				report, waits := locktest.WhenWaiting(nil)
				outs[i] = locktest.LockIn(locktest.Within(t, locktest.Patience), closing, name, report)
				<-waits
			}
			next := locktest.LockIn(locktest.Within(t, locktest.Patience), other, name)
			if !holds {
				awaitQueued(t, nodes, name, 1)
			}
			if err := closing.Close(); err != nil {
				t.Error(err)
			}
			for _, out := range outs {
				if o := <-out; !errors.Is(o.Err, redlatch.ErrClosed) {
					t.Errorf("%v, %v", o.Lock, o.Err)
				}
			}
			if !holds {
				locktest.Unlock(t, first)
			}
			o := <-next
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			locktest.Unlock(t, o.Lock)
			awaitQueued(t, nodes, name, 0)
		}
	}
}

// Whoever is to take over a lock's keys, and wants another name as well, may find that one held on a node. What was left to it
// there is removed, also if the lock changes hands again and again before the former holder would do that.
func TestTransferToACallForSeveral(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	gate, former, several, last := locktest.Open(t, c), locktest.Open(t, c), locktest.Open(t, c), locktest.Open(t, c)
	name, also := t.Name(), t.Name()+"/also"
	lock := locktest.TryLock(t, gate, name)
	locktest.AwaitOn(t, lock, nodes...)
	ctx, arbiter := locktest.Within(t, locktest.Patience), 0
	queue := func(n int, client *redlatch.Client, names ...string) <-chan locktest.Outcome {
		out := make(chan locktest.Outcome, 1)
		go func() {
			lock, err := client.LockAll(ctx, names)
			out <- locktest.Outcome{Lock: lock, Err: err}
		}()
		arbiter = awaitQueued(t, nodes, name, n)
		return out
	}
	held := func(out <-chan locktest.Outcome) *redlatch.Lock {
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		return o.Lock
	}
	first, second := queue(1, former, name), queue(2, several, name, also)
	other := nodes[(arbiter+1)%len(nodes)]
	locktest.Do(t, other, "SET", also, "another's", "PX", "60000")
	t.Cleanup(func() { locktest.Do(t, other, "DEL", also) })
	locktest.Unlock(t, lock)
	lock = held(first)
	for _, s := range nodes {
		locktest.Await(t, "all nodes have it", func() bool { return locktest.Value(t, s, name) == hook.LeaseOf(lock).HolderID() })
	}
	locktest.Unlock(t, lock)
	lock = held(second)
	third, fourth := queue(1, former, name), queue(2, last, name)
	locktest.Unlock(t, lock)
	locktest.Unlock(t, held(third))
	locktest.Unlock(t, held(fourth))
	for _, s := range nodes {
		locktest.AwaitValue(t, s, name, "")
	}
}

// What was left to a client that could not reach a node is removed there when it can, also if its own TTL is over by then, and
// the former holder's client was closed.
func TestTransferOutlastsTheTTL(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	// What a busy machine's client does not take over soon its former holder releases, but not each time.
	for round := 0; !takenOverBut(t, nodes, fmt.Sprint(t.Name(), round)); round++ {
	}
}

// takenOverBut has a lock transferred past a node that cannot be reached, and reports whether it was.
func takenOverBut(t *testing.T, nodes []*redistest.Server, name string) bool {
	c := locktest.Config(redistest.URLs(nodes)...)
	c.NodeTimeout = 500 * time.Millisecond
	ways := [][]*redistest.Proxy{redistest.Proxies(t, nodes), redistest.Proxies(t, nodes)}
	wires := locktest.Taps(ways[0])
	gate := locktest.Open(t, c)
	former := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(ways[0])...))
	next := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(ways[1])...))
	lock := locktest.TryLock(t, gate, name)
	ctx := locktest.Within(t, locktest.Patience)
	first := locktest.LockIn(ctx, former, name)
	awaitQueued(t, nodes, name, 1)
	const short = time.Second
	second := locktest.LockIn(ctx, next, name, redlatch.WithTTL(short), redlatch.WithoutRenewal())
	arbiter := awaitQueued(t, nodes, name, 2)
	locktest.Unlock(t, lock)
	o := <-first
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	id := hook.LeaseOf(o.Lock).HolderID()
	far := 0
	locktest.Await(t, "it is on a node that keeps no queue", func() bool {
		far = slices.IndexFunc(nodes, func(s *redistest.Server) bool { return s != nodes[arbiter] && locktest.Value(t, s, name) == id })
		return far >= 0
	})
	for _, way := range ways {
		way[far].BlackHole(redistest.Both, true)
	}
	locktest.Unlock(t, o.Lock)
	if o := <-second; o.Err != nil {
		t.Fatal(o.Err)
	}
	if wires[3-arbiter-far].Count("release") > 0 {
		ways[0][far].BlackHole(redistest.Both, false)
		return false
	}
	former.Close()
	time.Sleep(2 * short) // the answer of the node that is far is waited for meanwhile
	ways[1][far].BlackHole(redistest.Both, false)
	locktest.Await(t, "what was left there is gone", func() bool { return locktest.Value(t, nodes[far], name) != id })
	return true
}
