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

// sight is what an observer was yielded.
type sight struct {
	holder redlatch.Holder
	err    error
}

func (s sight) String() string {
	if s.err != nil {
		return s.err.Error()
	}
	return fmt.Sprintf("%q", s.holder.ID)
}

// observe observes the lock of the test's name until the test is over.
func observe(t *testing.T, client *redlatch.Client) <-chan sight {
	return follow(t, func(ctx context.Context, sights chan<- sight) {
		for holder, err := range client.Observe(ctx, t.Name()) {
			sights <- sight{holder, err}
		}
	})
}

// follow has watch send what is seen until the test is over.
func follow[Seen any](t *testing.T, watch func(context.Context, chan<- Seen)) <-chan Seen {
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan Seen, 1000)
	var over sync.WaitGroup
	over.Go(func() { watch(ctx, seen) })
	t.Cleanup(func() { cancel(); over.Wait() })
	return seen
}

// awaitSight waits for one that is as wanted, and returns those before it.
func awaitSight[Seen any](t *testing.T, sights <-chan Seen, what string, wanted func(Seen) bool) (before []Seen) {
	t.Helper()
	for deadline := time.After(locktest.Patience); ; {
		select {
		case s := <-sights:
			if wanted(s) {
				return before
			}
			before = append(before, s)
		case <-deadline:
			t.Fatalf("after %v, %s is not told", before, what)
		}
	}
}

func sightOf(label string) func(sight) bool {
	return func(s sight) bool { return s.err == nil && s.holder.Label == label }
}

// While no quorum answers that is told, once; then who holds the lock, also if it is the same. With
// a minority away nothing is told, whichever that is.
func TestObserverOfFewNodes(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(redistest.URLs(nodes)...)
	watched := locktest.Through(c, locktest.ProxyURLs(proxies)...)
	watched.NodeTimeout = 200 * time.Millisecond
	holder := locktest.Open(t, c)
	sights := observe(t, locktest.Open(t, watched))
	awaitSight(t, sights, "nobody", sightOf(""))
	for i, p := range proxies {
		p.BlackHole(redistest.Both, true)
		lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel(fmt.Sprint("holder ", i)))
		awaitSight(t, sights, "who locks while a node is away", sightOf(fmt.Sprint("holder ", i)))
		locktest.Unlock(t, lock)
		awaitSight(t, sights, "nobody", sightOf(""))
		p.BlackHole(redistest.Both, false)
	}
	lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("a"))
	awaitSight(t, sights, "a", sightOf("a"))
	for _, p := range proxies {
		p.BlackHole(redistest.Both, true)
	}
	awaitSight(t, sights, "no quorum", func(s sight) bool { return errors.Is(s.err, redlatch.ErrNoQuorum) })
	time.Sleep(3 * time.Second) // two looks, of which neither tells it again
	for _, p := range proxies {
		p.BlackHole(redistest.Both, false)
	}
	for _, s := range awaitSight(t, sights, "a", sightOf("a")) {
		t.Errorf("before the same again: %v", s)
	}
	locktest.Unlock(t, lock)
}

// The arbiter, which is looked at, dies while nobody holds the lock, and before that while somebody
// does.
func TestObserverWithoutItsNode(t *testing.T) {
	t.Parallel()
	for arbiter := range 3 {
		t.Run(fmt.Sprint("without node ", arbiter), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, 3, redistest.Options{})
			c := locktest.Config(redistest.URLs(nodes)...)
			holder := locktest.Open(t, c)
			sights := observe(t, locktest.Open(t, c))
			lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("a"))
			awaitSight(t, sights, "a", sightOf("a"))
			nodes[arbiter].Kill()
			locktest.Unlock(t, lock)
			awaitSight(t, sights, "nobody", sightOf(""))
			lock = locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("b"))
			awaitSight(t, sights, "b", sightOf("b"))
			locktest.Unlock(t, lock)
		})
	}
}

// The node that is looked at may be one of those that a holder does without: that it has nothing is not the last word.
func TestObserverOfAMinorityThatHasNothing(t *testing.T) {
	t.Parallel()
	for without := range 3 {
		t.Run(fmt.Sprint("without node ", without), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			sights := observe(t, locktest.Open(t, locktest.Config(redistest.URLs(nodes)...)))
			awaitSight(t, sights, "nobody", sightOf(""))
			for i, s := range nodes {
				if i != without {
					locktest.Do(t, s, "SET", t.Name(), "other", "PX", "60000")
				}
			}
			awaitSight(t, sights, "who has the other nodes", func(s sight) bool { return s.holder.ID == "other" })
		})
	}
}

// A key of another type is no lock of which it can be told whether it is held; when it is gone, nobody holds it.
func TestObserverOfAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	for _, s := range nodes {
		locktest.Do(t, s, "RPUSH", t.Name(), "x")
	}
	sights := observe(t, locktest.Open(t, locktest.Config(redistest.URLs(nodes)...)))
	for _, s := range awaitSight(t, sights, "that it is refused", func(s sight) bool { return errors.Is(s.err, redlatch.ErrRefused) }) {
		if s.err == nil {
			t.Errorf("told before: %v", s)
		}
	}
	for _, s := range nodes {
		locktest.Do(t, s, "DEL", t.Name())
	}
	awaitSight(t, sights, "nobody", sightOf(""))
}

// A counter that no client has written says nothing of the order of holders.
func TestObserverOfAForeignCounter(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	holder := locktest.Open(t, c)
	first := locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("first"), redlatch.WithoutRenewal())
	counter := "redlatch:{" + t.Name() + "}:token:" + t.Name()
	locktest.AwaitOn(t, first, nodes...)
	for _, s := range nodes {
		locktest.Do(t, s, "SET", counter, "99999999999999999999")
	}
	sights := observe(t, locktest.Open(t, c))
	awaitSight(t, sights, "the first", sightOf("first"))
	for _, s := range nodes {
		locktest.Do(t, s, "DEL", counter)
	}
	locktest.Unlock(t, first)
	second := locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("second"))
	awaitSight(t, sights, "the second", sightOf("second"))
	locktest.Unlock(t, second)
}

// A server comes back with old data, as a replica that lacks the last writes does when it is
// promoted: its leader is not told after the one that was seen meanwhile.
func TestObserverDoesNotGoBack(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		n, forgotten := []int{1, 3}[i%2], i >= 2
		t.Run(fmt.Sprintf("N=%d, without counters %t", n, forgotten), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			holder := locktest.Open(t, c)
			proxies := redistest.Proxies(t, nodes)
			sights := observe(t, locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)))
			commands := func() (sum int) {
				for _, n := range proxies[0].Commands() {
					sum += n
				}
				return sum
			}
			counter := "redlatch:{" + t.Name() + "}:token:" + t.Name()
			type record struct{ id, token string }
			old := make([]record, n)
			first := locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("first"))
			awaitSight(t, sights, "the first", sightOf("first"))
			locktest.AwaitOn(t, first, nodes...)
			for i, s := range nodes {
				old[i] = record{locktest.Value(t, s, t.Name()), locktest.Value(t, s, counter)}
			}
			locktest.Unlock(t, first)
			second := locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("second"), redlatch.WithoutRenewal())
			awaitSight(t, sights, "the second", sightOf("second"))
			for i, s := range nodes { // else there is a moment in which nobody has most of them
				locktest.Await(t, "all nodes have the second", func() bool {
					v := locktest.Value(t, s, t.Name())
					has := v != "" && v != old[i].id
					if !has { // a busy machine's node was late, and is given it by an extension
						_ = second.Extend(t.Context(), c.TTL)
					}
					return has
				})
			}
			for i, s := range nodes {
				locktest.Do(t, s, "SET", counter, old[i].token)
				if forgotten { // as that of one who has held for longer than it is kept
					locktest.Do(t, s, "DEL", counter)
				}
				locktest.Do(t, s, "SET", t.Name(), old[i].id, "PX", "4000")
			}
			// The old key ends by itself; by then it was looked at, and not all the time.
			before := commands()
			for _, s := range awaitSight(t, sights, "nobody", sightOf("")) {
				if s.holder.Label == "first" {
					t.Errorf("told after the second: %v", s)
				}
			}
			// Each look is a few commands.
			if n := commands() - before; n > 100 {
				t.Errorf("a node was sent %d commands in the 4 s of the old key", n)
			}
			_ = second.Unlock(t.Context()) // it is lost
			locktest.Unlock(t, locktest.TryLock(t, holder, t.Name(), redlatch.WithLabel("third")))
		})
	}
}

// One who holds a lock and renews it costs an observer one command on one node each time, and the other
// nodes nothing.
func TestObserverOfARenewal(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(redistest.URLs(nodes)...)
	lock := locktest.TryLock(t, locktest.Open(t, c), t.Name(), redlatch.WithLabel("a"), redlatch.WithoutRenewal())
	sights := observe(t, locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)))
	awaitSight(t, sights, "a", sightOf("a"))
	// The arbiter is the node that is asked most.
	count := func() (arbiter, others int) {
		for _, p := range proxies {
			n := p.Commands()["EVAL"]
			arbiter, others = max(arbiter, n), others+n
		}
		return arbiter, others - arbiter
	}
	const tries = 20
	for try := 1; ; try++ {
		looks, reads := count()
		start, renewals := time.Now(), 0
		for range 10 {
			before, _ := count()
			locktest.Await(t, "extended", func() bool { renewals++; return lock.Extend(t.Context(), c.TTL) == nil })
			locktest.Await(t, "the observer has looked", func() bool { now, _ := count(); return now > before })
		}
		arbiter, others := count()
		looks, reads = arbiter-looks, others-reads
		// A busy machine's node may be late, and then the others are asked, but not each time.
		if looks <= renewals+2+int(time.Since(start)/time.Second) && reads <= renewals/2 {
			break
		}
		if try == tries {
			t.Errorf("%d looks for %d renewals in %v, and the other nodes were asked %d times", looks, renewals, time.Since(start), reads)
			break
		}
	}
	locktest.Unlock(t, lock)
}
