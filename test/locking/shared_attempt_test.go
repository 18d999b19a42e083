package locking

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// blockTTL leaves time for a busy machine: who comes later than the drift, more than a minute of it, has an
// attempt of its own.
const blockTTL = 2 * time.Hour

// Callers who come one after the other, and want the same, hold by one attempt of
// the first: the nodes are asked once for eight, and tokens increase all the same,
// for those who come later from elsewhere too.
func TestCallersHoldByOneAttempt(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			wires := locktest.Taps(proxies)
			c, d := locktest.Config(locktest.ProxyURLs(proxies)...), locktest.Config(redistest.URLs(nodes)...)
			c.MaxTTL, d.MaxTTL = blockTTL, blockTTL
			client, other := locktest.Open(t, c), locktest.Open(t, d)
			long := redlatch.WithTTL(blockTTL)
			lock := locktest.TryLock(t, client, t.Name(), long)
			locktest.AwaitOn(t, lock, nodes...)
			const callers = 20
			var outs []<-chan locktest.Outcome
			for range callers {
				report, waits := locktest.WhenWaiting(nil)
				outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), report, long))
				<-waits
			}
			var locks []*redlatch.Lock
			for _, out := range outs {
				locks = append(locks, lock)
				locktest.Unlock(t, lock)
				o := <-out
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				if o.Lock.Token() <= lock.Token() {
					t.Errorf("token %d follows %d", o.Lock.Token(), lock.Token())
				}
				lock = o.Lock
			}
			const steps = 1 + (callers+7)/8
			released := 0
			for _, w := range wires {
				w.CheckOnce(t, "acquire")
				locktest.Await(t, fmt.Sprintf("%d callers have taken %d steps on all nodes", callers+1, steps), func() bool { return w.Count("acquire") >= steps })
				if got := w.Count("acquire"); got != steps {
					t.Errorf("%d callers took %d steps, want %d", callers+1, got, steps)
				}
				if w.Count("release") > 0 {
					released++
				}
			}
			if released > (n-1)/2 { // a node may be late, and is then released by itself
				t.Errorf("%d of %d nodes were sent a release", released, n)
			}

			// Those who held before have no more to say about what the last one holds.
			for _, before := range locks {
				if err := before.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) {
					t.Errorf("a second unlock: %v", err)
				}
				if err := before.Extend(t.Context(), time.Second); !errors.Is(err, redlatch.ErrReleased) {
					t.Errorf("an extension after the unlock: %v", err)
				}
				if _, err := before.Detach(); !errors.Is(err, redlatch.ErrReleased) {
					t.Errorf("a detachment after the unlock: %v", err)
				}
			}
			locktest.Extend(t, lock, blockTTL)
			if _, err := locktest.TryInTime(t, other, t.Name()); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("another gets what the last one holds: %v", err)
			}
			if s := client.Stats(); s.Held != 1 || s.Acquired != callers+1 || s.Tries != steps {
				t.Errorf("%+v", s)
			}
			locktest.Unlock(t, lock)
			for _, s := range nodes {
				locktest.AwaitValue(t, s, t.Name(), "")
			}
			next := locktest.TryLock(t, other, t.Name())
			if next.Token() <= lock.Token() {
				t.Errorf("elsewhere token %d follows %d", next.Token(), lock.Token())
			}
			locktest.Unlock(t, next)
		})
	}
}

// Whoever wants something else than the holder before, or comes so late that an
// attempt of its own would be valid for longer, has one.
func TestCallersHoldByAttemptsOfTheirOwn(t *testing.T) {
	t.Parallel()
	node := locktest.Shared(t, 1)[0]
	long := []redlatch.Option{redlatch.WithTTL(blockTTL)}
	for what, c := range map[string]struct {
		first, next []redlatch.Option
		held        time.Duration
		same        bool
	}{
		"the same":      {first: long, next: long, same: true},
		"another label": {first: long, next: append(slices.Clone(long), redlatch.WithLabel("b"))},
		"another TTL":   {first: long, next: []redlatch.Option{redlatch.WithTTL(blockTTL - time.Second)}},
		"late": {
			first: []redlatch.Option{redlatch.WithTTL(20 * time.Second)},
			next:  []redlatch.Option{redlatch.WithTTL(20 * time.Second)},
			held:  250 * time.Millisecond, // more than the drift of 20 s, and far less than a renewal's time
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			conf := locktest.Config(node.URL())
			conf.MaxTTL = blockTTL
			client := locktest.Open(t, conf)
			// The first of a block has others behind it when it asks.
			gate := locktest.TryLock(t, client, t.Name())
			var outs []<-chan locktest.Outcome
			for _, options := range [][]redlatch.Option{c.first, c.next, nil} {
				report, waits := locktest.WhenWaiting(nil)
				outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), append(slices.Clone(options), report)...))
				<-waits
			}
			locktest.Unlock(t, gate)
			first := <-outs[0]
			if first.Err != nil {
				t.Fatal(first.Err)
			}
			id := locktest.Value(t, node, t.Name())
			time.Sleep(c.held)
			locktest.Unlock(t, first.Lock)
			next := <-outs[1]
			if next.Err != nil {
				t.Fatal(next.Err)
			}
			if same := locktest.Value(t, node, t.Name()) == id; same != c.same {
				t.Errorf("the next holds by the attempt of the first: %t, want %t", same, c.same)
			}
			if next.Lock.Token() <= first.Lock.Token() {
				t.Errorf("token %d follows %d", next.Lock.Token(), first.Lock.Token())
			}
			locktest.Unlock(t, next.Lock)
			last := <-outs[2]
			if last.Err != nil {
				t.Fatal(last.Err)
			}
			locktest.Unlock(t, last.Lock)
			locktest.AwaitValue(t, node, t.Name(), "")
		})
	}
}

// However far off a machine's clock is, its callers who hold by one attempt have tokens that are larger than the last one,
// also where the nodes' counters are ahead of their clocks.
func TestTokensOfOneAttemptByAWrongClock(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for what, offset := range map[string]time.Duration{"2300": 274 * year, "before 1970": -100 * year} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			node := locktest.Shared(t, 1)[0]
			client := locktest.OpenAt(t, locktest.Config(node.URL()), offset)
			for i := range 8 { // numbers beyond 2^53 are rounded up or down
				name := fmt.Sprintf("%s/%d", t.Name(), i)
				gate := locktest.TryLock(t, client, name)
				var outs []<-chan locktest.Outcome
				for range 8 { // the first asks for the tokens of all
					report, waits := locktest.WhenWaiting(nil)
					outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), client, name, report))
					<-waits
				}
				before := uint64(locktest.ServerTime(t, node).Add(time.Minute).UnixMicro()) + uint64(i)
				locktest.Do(t, node, "SET", "redlatch:{"+name+"}:token:"+name, fmt.Sprint(before))
				locktest.Unlock(t, gate)
				for _, out := range outs {
					o := <-out
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					if o.Lock.Token() <= before {
						t.Errorf("token %d follows %d", o.Lock.Token(), before)
					}
					before = o.Lock.Token()
					locktest.Unlock(t, o.Lock)
				}
			}
		})
	}
}
