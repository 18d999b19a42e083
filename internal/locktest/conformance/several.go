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

// namesOf are n names of the test's own.
func namesOf(t *testing.T, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s/%d", t.Name(), i)
	}
	return names
}

// One lock has several names: nobody else gets any of them, one of which somebody has is a lock for
// nobody, and tokens grow for each name across locks of one and of several.
func severalNames(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	names := namesOf(t, 3)
	a, b, c := names[0], names[1], names[2]
	single := locktest.TryLock(t, client, b)
	locktest.Unlock(t, single)
	awaitGone(t, s, b)

	lock := locktest.TryLock(t, client, b, redlatch.WithAlso(a, b), redlatch.WithLabel("holder"))
	if got := lock.Names(); !slices.Equal(got, []string{b, a}) || lock.Name() != b {
		t.Errorf("the names are %q, the first %q", got, lock.Name())
	}
	if lock.Token() <= single.Token() {
		t.Errorf("token %d follows %d", lock.Token(), single.Token())
	}
	for _, name := range []string{a, b} {
		for _, locker := range []Client{client, other} {
			for _, options := range [][]redlatch.Option{nil, {redlatch.WithAlso(c)}} {
				_, err := locktest.TryInTime(t, locker, name, options...)
				if !errors.Is(err, redlatch.ErrHeld) {
					t.Fatalf("%s and %d options: %v", name, len(options), err)
				}
				failure := locktest.FailureOf(t, err)
				if holder, left, ok := failure.Holder(); !ok || holder.Label != "holder" || left <= 0 || failure.Name != name {
					t.Errorf("%q is held by %v for %v", failure.Name, holder, left)
				}
			}
		}
	}
	// A call under the lock that would wait for one of its names would wait for itself.
	if _, err := client.LockAll(lock.Context(), []string{c, a}); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("under the lock: %v", err)
	}
	if held, ok := redlatch.Held(lock.Context(), a); !ok || held != lock {
		t.Errorf("the context has %v", held)
	}
	awaitGone(t, s, c) // what a failed try has left
	free := locktest.TryLock(t, other, c)
	locktest.Unlock(t, free)
	locktest.Unlock(t, lock)
	for _, name := range names {
		awaitGone(t, s, name)
	}
	for _, name := range []string{a, b} {
		next := locktest.TryLock(t, other, name)
		if next.Token() <= lock.Token() {
			t.Errorf("%s: token %d follows %d", name, next.Token(), lock.Token())
		}
		locktest.Unlock(t, next)
	}
}

// Who waits for several names waits for whichever is held, and has all when it is free; who waits
// for one of them has it after that.
func severalWait(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	names := namesOf(t, 4)
	for _, held := range []string{names[0], names[3]} { // in the queue of the first name, or of another
		for who, holder := range map[string]Client{"another client": other, "the same client": client} {
			before := locktest.TryLock(t, holder, held)
			report, waits := locktest.WhenWaiting(nil)
			out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, names[2], redlatch.WithAlso(names...), report)
			<-waits
			report, waits = locktest.WhenWaiting(nil)
			behind := locktest.LockIn(locktest.Within(t, locktest.Patience), client, held, report)
			<-waits
			locktest.Unlock(t, before)
			// A busy machine's caller may miss its turn, which the next in the queue then has.
			for range 2 {
				var o locktest.Outcome
				select {
				case o = <-out:
				case o = <-behind:
				}
				if o.Err != nil {
					t.Fatalf("%s, %s: %v", who, held, o.Err)
				}
				if o.Lock.Token() <= before.Token() {
					t.Errorf("token %d follows %d", o.Lock.Token(), before.Token())
				}
				locktest.Unlock(t, o.Lock)
			}
		}
	}
	for _, name := range names {
		awaitGone(t, s, name)
	}
}

// Many callers of several clients lock one to four names each, in any order, some of which give up:
// all come to an end, no name has two holders, and nothing is left.
func severalAtOnce(t *testing.T, s Stage) {
	const clients, callers, rounds = 4, 2, 10
	names := namesOf(t, 6)
	gates := &locktest.Turnstiles{T: t}
	ctx := locktest.Within(t, 2*locktest.Patience)
	var group sync.WaitGroup
	for i := range clients {
		client := s.Open(t, redlatch.Config{})
		for k := range callers {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			group.Go(func() {
				for range rounds {
					of := rng.Perm(len(names))[:1+rng.IntN(4)]
					also := make([]string, len(of))
					for k, n := range of {
						also[k] = names[n]
					}
					attempt, cancel := ctx, context.CancelFunc(func() {})
					if rng.IntN(4) == 0 {
						attempt, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(10))*time.Millisecond)
					}
					lock, err := client.Lock(attempt, also[0], redlatch.WithAlso(also...))
					switch {
					case err == nil:
						gates.Pass(lock, fmt.Sprint(i), nil)
					case attempt == ctx || ctx.Err() != nil:
						t.Errorf("%q: %v", also, err)
					}
					cancel()
				}
			})
		}
	}
	group.Wait()
	for _, name := range names {
		awaitGone(t, s, name)
	}
}

// Another library's lock of one name is in the way of all, and nothing is taken beside it.
func severalAndForeign(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	names := namesOf(t, 3)
	for i := range s.Nodes() {
		s.Set(t, i, names[1], "foreign")
	}
	_, err := locktest.TryInTime(t, client, names[0], redlatch.WithAlso(names...))
	if holder, _, _ := locktest.FailureOf(t, err).Holder(); !errors.Is(err, redlatch.ErrHeld) || holder.ID != "foreign" {
		t.Errorf("%v", err)
	}
	awaitGone(t, s, names[0])
	awaitGone(t, s, names[2])
	for i := range s.Nodes() {
		s.Set(t, i, names[1], "")
	}
	locktest.Unlock(t, locktest.TryLock(t, client, names[0], redlatch.WithAlso(names...)))
}

// An extension goes for all names. One that is lost on a minority of the nodes is given back; where it
// is lost on so many that no quorum has it the lock is lost, and the release deletes the rest.
func severalExtended(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	names := namesOf(t, 3)
	lock := locktest.TryLock(t, client, names[0], redlatch.WithAlso(names...), redlatch.WithoutRenewal())
	if s.Nodes() > 1 {
		s.Set(t, 0, names[1], "")
	}
	locktest.Await(t, "it is extended", func() bool { return lock.Extend(t.Context(), 30*time.Second) == nil })
	for i := range s.Nodes() {
		for _, name := range names {
			locktest.Await(t, "all nodes have it for longer", func() bool {
				if s.Left(t, i, name) < 25*time.Second {
					lock.Extend(t.Context(), 30*time.Second) // a busy machine's node was late
					return false
				}
				return true
			})
		}
	}
	locktest.Await(t, "it is found lost", func() bool {
		for i := range stolen(s) { // each time: what is still under way of an extension gives back a node's
			s.Set(t, i, names[2], "")
		}
		return errors.Is(lock.Extend(t.Context(), 30*time.Second), redlatch.ErrLost)
	})
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	for _, name := range names {
		awaitGone(t, s, name)
	}
}

// What cannot work is refused before anything is sent.
func severalRefused(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	names := namesOf(t, 65)
	for what, err := range map[string]error{
		"no names":        locktest.ErrorOf(client.LockAll(t.Context(), nil)),
		"65 names":        locktest.ErrorOf(client.LockAll(t.Context(), names)),
		"an empty name":   locktest.ErrorOf(client.LockAll(t.Context(), []string{names[0], ""})),
		"a name of ours":  locktest.ErrorOf(client.TryLock(t.Context(), names[0], redlatch.WithAlso("redlatch:{a}:token:a"))),
		"an empty option": locktest.ErrorOf(client.LockAll(t.Context(), names[:2], nil)),
	} {
		if !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	lock, err := client.LockAll(locktest.Within(t, locktest.Patience), slices.Concat(names[:64], names[:64]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Detach(); !errors.Is(err, redlatch.ErrInvalid) || lock.Err() != nil {
		t.Errorf("detached: %v; the lock is %v", err, lock.Err())
	}
	locktest.Unlock(t, lock)
	one, err := client.LockAll(locktest.Within(t, locktest.Patience), []string{names[0], names[0]})
	if err != nil {
		t.Fatal(err)
	}
	if got := one.Names(); !slices.Equal(got, names[:1]) {
		t.Errorf("the names are %q", got)
	}
	locktest.Unlock(t, one)
	for _, name := range names {
		awaitGone(t, s, name)
	}
}
