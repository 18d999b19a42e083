package conformance

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
	"github.com/redlatch/redlatch/internal/locktest"
)

// slotKeys are the keys of the slots of the test's own permits.
func slotKeys(t *testing.T, k int) []string {
	keys := make([]string, k)
	for i := range keys {
		keys[i] = locktest.SlotKey(t.Name(), i)
	}
	return keys
}

// awaitPermitsGone waits until no node has anything of the test's permits.
func awaitPermitsGone(t *testing.T, s Stage, k int) {
	t.Helper()
	for _, key := range append(slotKeys(t, k), locktest.PermitsKey(t.Name())) {
		awaitGone(t, s, key)
	}
}

// takeAll takes k permits, which are all slots, and returns them in the slots' order.
func takeAll(t *testing.T, k int, clients ...Client) []*redlatch.Lock {
	t.Helper()
	locks := make([]*redlatch.Lock, k)
	for i := range k {
		// It waits: one may have been woken up who has gone.
		l, err := clients[i%len(clients)].Acquire(locktest.Within(t, locktest.Patience), t.Name(), k, redlatch.WithLabel("holder"))
		if err != nil {
			t.Fatal(err)
		}
		if l.Slot() < 0 || l.Slot() >= k || locks[l.Slot()] != nil {
			t.Fatalf("slot %d is one of %d", l.Slot(), k)
		}
		locks[l.Slot()] = l
	}
	return locks
}

// k callers have k slots, and another none, whichever client they are of. The lock of the same name is
// another. A slot that was released is the next caller's, under a larger token.
func permitSlots(t *testing.T, s Stage) {
	const k = 3
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	locks, refused := takeAll(t, k, client, other), false
	for _, locker := range []Client{client, other} {
		_, err := locktest.TryInTime(t, locker, t.Name(), redlatch.WithPermits(k))
		if !errors.Is(err, redlatch.ErrHeld) {
			t.Fatalf("a permit beside all: %v", err)
		}
		if holder, left, ok := locktest.FailureOf(t, err).Holder(); !ok || holder.Label != "holder" || left <= 0 {
			t.Errorf("it is held by %v for %v", holder, left)
		}
	}
	lock := locktest.TryLock(t, client, t.Name())
	if lock.Slot() != -1 || locks[0].Name() != t.Name() {
		t.Errorf("the lock has slot %d, the permit the name %q", lock.Slot(), locks[0].Name())
	}
	locktest.Unlock(t, lock)

	ctx := locks[1].Context()
	for _, locker := range []Client{client, other} { // it is of one of them
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		_, err := locker.Acquire(ctx, t.Name(), k)
		refused = refused || errors.Is(err, redlatch.ErrInvalid)
		cancel()
	}
	if !refused {
		t.Error("a permit under a permit is not refused")
	}
	if held, ok := redlatch.Held(ctx, t.Name()); ok {
		t.Errorf("the context has the lock %v", held)
	}
	before := locks[1].Token()
	locktest.Unlock(t, locks[1])
	next, err := other.Acquire(locktest.Within(t, locktest.Patience), t.Name(), k)
	if err != nil {
		t.Fatal(err)
	}
	if next.Slot() != 1 || next.Token() <= before {
		t.Errorf("slot %d with token %d follows slot 1 with %d", next.Slot(), next.Token(), before)
	}
	if _, err := next.Detach(); !errors.Is(err, redlatch.ErrInvalid) || next.Err() != nil {
		t.Errorf("detached: %v; it is %v", err, next.Err())
	}
	more, err := client.Acquire(locktest.Within(t, locktest.Patience), t.Name(), k+1) // the largest counts
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*redlatch.Lock{locks[0], next, locks[2], more} {
		locktest.Unlock(t, l)
	}
	awaitPermitsGone(t, s, k+1)
}

// permitIn waits for a permit and returns where its outcome will be, when it waits.
func permitIn(t *testing.T, ctx context.Context, client Client, k int, options ...redlatch.Option) <-chan locktest.Outcome {
	t.Helper()
	report, waits := locktest.WhenWaiting(nil)
	out := locktest.LockIn(ctx, client, t.Name(), append(options, redlatch.WithPermits(k), report)...)
	<-waits
	return out
}

// The callers of a client get permits in the order of their calls, each the slot that is free.
func permitsInOrder(t *testing.T, s Stage) {
	const k = 3
	client := s.Open(t, redlatch.Config{})
	held := takeAll(t, k, client)
	var outs []<-chan locktest.Outcome
	for range k {
		outs = append(outs, permitIn(t, locktest.Within(t, locktest.Patience), client, k))
	}
	for i, lock := range held {
		locktest.Unlock(t, lock)
		o := <-outs[i]
		if o.Err != nil || o.Lock.Slot() != lock.Slot() || o.Lock.Token() <= lock.Token() {
			t.Fatalf("caller %d has %v, %v", i, o.Lock, o.Err)
		}
		defer locktest.Unlock(t, o.Lock)
	}
}

// When several permits are free several waiters get in, none of which lets go, and soon.
func permitsTogether(t *testing.T, s Stage) {
	const k = 3
	clients := [k + 1]Client{s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})}
	locktest.Soon(t, "several permits", soon, func(int) time.Duration { return inTogether(t, k, clients[k], clients[:k]) })
}

// inTogether has each of others wait for a permit, and returns how long all of them took from when the holder's were
// released.
func inTogether(t *testing.T, k int, holder Client, others []Client) time.Duration {
	t.Helper()
	held := takeAll(t, k, holder)
	var outs []<-chan locktest.Outcome
	for _, other := range others {
		outs = append(outs, permitIn(t, locktest.Within(t, locktest.Patience), other, k))
	}
	time.Sleep(10 * time.Millisecond) // until they rest: one who comes to the queue may wake up another
	start := time.Now()
	for _, lock := range held {
		locktest.Unlock(t, lock)
	}
	var in []*redlatch.Lock
	for i, out := range outs {
		o := <-out
		if o.Err != nil {
			t.Fatalf("waiter %d beside others: %v", i, o.Err)
		}
		in = append(in, o.Lock)
	}
	took := time.Since(start)
	for _, lock := range in {
		locktest.Unlock(t, lock)
	}
	return took
}

// Many callers of several clients, some of which give up: no slot has two holders, tokens grow for each,
// and nothing is left.
func permitsOfMany(t *testing.T, s Stage) {
	const k, clients, callers, rounds = 2, 4, 3, 10
	gates := make([]*locktest.Turnstile, k)
	for i := range gates {
		gates[i] = &locktest.Turnstile{T: t}
	}
	ctx := locktest.Within(t, 2*locktest.Patience)
	var group sync.WaitGroup
	for i := range clients {
		client := s.Open(t, redlatch.Config{})
		for c := range callers {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(c)))
			group.Go(func() {
				for range rounds {
					attempt, cancel := ctx, context.CancelFunc(func() {})
					if rng.IntN(4) == 0 {
						attempt, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(10))*time.Millisecond)
					}
					lock, err := client.Acquire(attempt, t.Name(), k)
					switch {
					case err == nil && (lock.Slot() < 0 || lock.Slot() >= k):
						t.Errorf("slot %d is one of %d", lock.Slot(), k)
					case err == nil:
						gates[lock.Slot()].Pass(lock, fmt.Sprint(i))
					case attempt == ctx || ctx.Err() != nil:
						t.Errorf("a permit: %v", err)
					}
					cancel()
				}
			})
		}
	}
	group.Wait()
	awaitPermitsGone(t, s, k)
}

// Waiters that give up, the one that was woken up among them, are in nobody's way.
func permitsGivenUp(t *testing.T, s Stage) {
	const k = 2
	client := s.Open(t, redlatch.Config{})
	for round := range 5 {
		held := takeAll(t, k, client)
		ctx, cancel := context.WithCancel(locktest.Within(t, locktest.Patience))
		var gone []<-chan locktest.Outcome
		for range 2 {
			gone = append(gone, permitIn(t, ctx, s.Open(t, redlatch.Config{}), k))
		}
		stays := permitIn(t, locktest.Within(t, locktest.Patience), s.Open(t, redlatch.Config{}), k)
		if round%2 == 0 {
			cancel()
			locktest.Unlock(t, held[0])
		} else {
			locktest.Unlock(t, held[0])
			cancel()
		}
		for _, out := range gone {
			if o := <-out; o.Err == nil {
				locktest.Unlock(t, o.Lock)
			}
		}
		o := <-stays
		if o.Err != nil {
			t.Fatalf("who stays: %v", o.Err)
		}
		locktest.Unlock(t, o.Lock)
		locktest.Unlock(t, held[1])
		awaitPermitsGone(t, s, k)
	}
}

// A permit is extended, given back where a minority of nodes lost it, and lost where a quorum has.
func permitsExtended(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithPermits(2), redlatch.WithoutRenewal())
	if lock.Slot() < 0 || lock.Slot() > 1 {
		t.Fatalf("slot %d is one of 2", lock.Slot())
	}
	key := slotKeys(t, 2)[lock.Slot()]
	if s.Nodes() > 1 {
		s.Set(t, 0, key, "")
	}
	locktest.Await(t, "it is extended", func() bool { return lock.Extend(t.Context(), 30*time.Second) == nil })
	for i := range s.Nodes() {
		locktest.Await(t, "all nodes have it for longer", func() bool {
			if s.Left(t, i, key) < 25*time.Second {
				lock.Extend(t.Context(), 30*time.Second) // a busy machine's node was late
				return false
			}
			return true
		})
	}
	for i := range stolen(s) {
		s.Set(t, i, key, "")
	}
	locktest.Await(t, "it is found lost", func() bool {
		return errors.Is(lock.Extend(t.Context(), 30*time.Second), redlatch.ErrLost)
	})
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	awaitPermitsGone(t, s, 2)
}

// Who tries at random gets a permit too.
func permitsWithoutQueue(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	held := takeAll(t, 2, other)
	out := permitIn(t, locktest.Within(t, locktest.Patience), client, 2, redlatch.WithoutQueue())
	locktest.Unlock(t, held[1])
	o := <-out
	if o.Err != nil || o.Lock.Slot() != 1 {
		t.Fatalf("%v, %v", o.Lock, o.Err)
	}
	locktest.Unlock(t, o.Lock)
	locktest.Unlock(t, held[0])
	awaitPermitsGone(t, s, 2)
}

// What cannot work is refused before anything is sent.
func permitsRefused(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	name := t.Name()
	for what, err := range map[string]error{
		"none":            locktest.ErrorOf(client.Acquire(t.Context(), name, 0)),
		"fewer than none": locktest.ErrorOf(client.TryLock(t.Context(), name, redlatch.WithPermits(-1))),
		"257":             locktest.ErrorOf(client.Acquire(t.Context(), name, 257)),
		"several names":   locktest.ErrorOf(client.Acquire(t.Context(), name, 2, redlatch.WithAlso(name+"/b"))),
		"a lead":          client.Campaign(t.Context(), name, func(context.Context) error { return nil }, redlatch.WithPermits(1)),
	} {
		if !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var slots []int
	var locks []*redlatch.Lock
	for range 256 {
		lock := locktest.TryLock(t, client, name, redlatch.WithPermits(256))
		slots, locks = append(slots, lock.Slot()), append(locks, lock)
		defer locktest.Unlock(t, lock)
	}
	slices.Sort(slots)
	lost := func(lock *redlatch.Lock) bool { return lock.Err() != nil } // a busy machine has not renewed it in time
	if slots = slices.Compact(slots); len(slots) != 256 && !slices.ContainsFunc(locks, lost) {
		t.Errorf("%d slots", len(slots))
	}
}
