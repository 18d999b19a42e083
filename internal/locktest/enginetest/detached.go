package enginetest

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/oneshot"
)

// detach has a client take a lock, and give it up to the program that has its id.
func detach(t *testing.T, c *redlatch.Client, name string) (id string, lock *redlatch.Lock) {
	t.Helper()
	lock = Lock(t, c, name)
	id, err := lock.Detach()
	if err != nil {
		t.Fatal(err)
	}
	return id, lock
}

// is fails the test unless a one-shot call says what is wanted. It is made again where the servers of a busy machine
// did not answer in time.
func is(t *testing.T, want bool, call func() (bool, error)) {
	t.Helper()
	Await(t, "there is an answer", func() bool {
		got, err := call()
		if err != nil && !late(err) || err == nil && got != want {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
		return err == nil
	})
}

// extendByID extends a lock by its id, and returns until when it is held at least. On a busy machine a
// client may have to make sure of its session first.
func extendByID(t *testing.T, c *redlatch.Client, name, id string, ttl time.Duration) (until time.Time) {
	t.Helper()
	Await(t, "it is extended", func() bool {
		until = time.Now().Add(ttl * 98 / 100)
		extended, err := oneshot.New(c).Extend(t.Context(), name, id, ttl)
		if err == nil && !extended || err != nil && !late(err) {
			t.Fatalf("extend: %v, %v", extended, err)
		}
		return err == nil
	})
	return until
}

// Detach tests a lock that outlives its client: others extend it by its id, and release it.
func (e Engine) Detach(t *testing.T) {
	t.Parallel()
	ctx, servers, root := t.Context(), e.Common(t), Root(t)
	first, other := e.open(t, Patient, servers, root), e.open(t, Patient, servers, root)
	id, lock := detach(t, first, "name")
	if err := lock.Unlock(ctx); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("detached, it is unlocked: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	shots := oneshot.New(other)
	if h, err := shots.Inspect(ctx, "name"); err != nil || h.Holder.ID != id || h.Holder.Label == "" || h.Left <= 0 || h.Left > Patient.TTL {
		t.Errorf("held by %+v, %v", h, err)
	}
	extendByID(t, other, "name", id, Patient.TTL)
	is(t, false, func() (bool, error) { return shots.Extend(ctx, "name", id+"x", Patient.TTL) })
	is(t, false, func() (bool, error) { return shots.Extend(ctx, "nobody's", id, Patient.TTL) })
	is(t, false, func() (bool, error) { return shots.Release(ctx, "name", id+"x") })
	if _, err := locktest.TryInTime(t, other, "name"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("it is held, and tried: %v", err)
	}
	third := e.open(t, Patient, servers, root)
	is(t, true, func() (bool, error) { return oneshot.New(third).Release(ctx, "name", id) })
	is(t, false, func() (bool, error) { return shots.Release(ctx, "name", id) })
	is(t, false, func() (bool, error) { return shots.Extend(ctx, "name", id, Patient.TTL) })
	if h, err := shots.Inspect(ctx, "name"); err != nil || h.Holder.ID != "" {
		t.Errorf("released, it is held by %+v, %v", h, err)
	}
	next, err := locktest.TryInTime(t, third, "name")
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() <= lock.Token() {
		t.Errorf("the token %d after %d", next.Token(), lock.Token())
	}
	Unlock(t, next)
}

// DetachedEnds tests that a lock which nobody extends ends for those who try once, and not before its
// TTL has passed: when that is over where its client lives on, and with the session where not. Who extends
// it for less does not change that.
func (e Engine) DetachedEnds(t *testing.T) {
	t.Parallel()
	servers := e.Common(t)
	for name, then := range map[string]func(t *testing.T, client *redlatch.Client, root, id string){
		"its client lives":     func(*testing.T, *redlatch.Client, string, string) {},
		"its client has ended": func(_ *testing.T, client *redlatch.Client, _, _ string) { client.Close() },
		"it was extended for less": func(t *testing.T, _ *redlatch.Client, root, id string) {
			extendByID(t, e.open(t, Config, servers, root), "name", id, TTL/5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := Root(t)
			client := e.open(t, Config, servers, root)
			id, lock := detach(t, client, "name")
			then(t, client, root, id)
			next := e.awaitTry(t, servers, root)
			if early := time.Until(lock.Until()); early > 0 {
				t.Errorf("another has it %v before the end of its validity", early)
			}
			Unlock(t, next)
		})
	}
}

// awaitTry makes single tries, each by a client that knows nothing of the others, until one has the
// lock "name".
func (e Engine) awaitTry(t *testing.T, servers []string, root string) (next *redlatch.Lock) {
	t.Helper()
	Await(t, "a single try has it", func() bool {
		client := e.open(t, Config, servers, root)
		l, err := client.TryLock(t.Context(), "name")
		if errors.Is(err, redlatch.ErrHeld) || locktest.Late(err) {
			client.Close()
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		next = l
		return true
	})
	return next
}

// isHeld fails the test if the lock "name" can be had.
func isHeld(t *testing.T, try *redlatch.Client) {
	t.Helper()
	Await(t, "it is known who has it", func() bool {
		_, err := locktest.TryInTime(t, try, "name")
		if err == nil || !errors.Is(err, redlatch.ErrHeld) && !late(err) {
			t.Fatal("another has the lock: ", err)
		}
		return errors.Is(err, redlatch.ErrHeld)
	})
}

// ExtendedByID has a lock be extended from elsewhere while its first client lives on, another waits and
// others try: none of them ends it.
func (e Engine) ExtendedByID(t *testing.T) {
	t.Parallel()
	servers, root := e.Common(t), Root(t)
	id, _ := detach(t, e.open(t, renewed, servers, root), "name")
	next := LockIn(t, e.open(t, renewed, servers, root), "name")
	client, try := e.open(t, renewed, servers, root), e.open(t, renewed, servers, root)
	var until time.Time
	for range 4 {
		until = extendByID(t, client, "name", id, renewedTTL)
		for time.Until(until) > renewedTTL*2/3 {
			isHeld(t, try)
			time.Sleep(20 * time.Millisecond)
		}
	}
	got := <-next
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if early := until.Sub(got.At); early > 0 {
		t.Errorf("who waits has it %v before the end", early)
	}
	Unlock(t, got.Lock)
}

// HolderIsExtendedByID has another extend a lock whose holder renews it, and go: the lock stays the
// holder's, and that of its next caller.
func (e Engine) HolderIsExtendedByID(t *testing.T) {
	t.Parallel()
	ctx, servers, root := t.Context(), e.Common(t), Root(t)
	holder, other, try := e.open(t, renewed, servers, root), e.open(t, renewed, servers, root), e.open(t, renewed, servers, root)
	held := Lock(t, holder, "name")
	h, err := oneshot.New(other).Inspect(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	extendByID(t, other, "name", h.Holder.ID, renewedTTL)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	next := LockIn(t, holder, "name")
	for start := time.Now(); time.Since(start) < 2*renewedTTL; time.Sleep(100 * time.Millisecond) { // the other's session has ended
		isHeld(t, try)
		if err := held.Err(); err != nil {
			t.Fatal(err)
		}
	}
	Unlock(t, held)
	got := <-next
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	isHeld(t, try)
	Unlock(t, got.Lock)
}

// HolderIsReleasedByID has another release a lock that its holder then hands over to the next caller of its
// client: the next caller has it, and the holder is told that it was lost.
func (e Engine) HolderIsReleasedByID(t *testing.T) {
	t.Parallel()
	c := e.clients(t, 2, Patient)
	held := Lock(t, c[0], "name", redlatch.WithoutRenewal())
	next := LockIn(t, c[0], "name")
	other := oneshot.New(c[1])
	h, err := other.Inspect(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	is(t, true, func() (bool, error) { return other.Release(t.Context(), "name", h.Holder.ID) })
	if err := held.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("the holder of a lock that was released elsewhere: %v, want ErrLost", err)
	}
	got := <-next
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if got.Lock.Token() <= held.Token() {
		t.Errorf("the token %d after %d", got.Lock.Token(), held.Token())
	}
	Unlock(t, got.Lock)
}

// List tests who holds, and who waits.
func (e Engine) List(t *testing.T) {
	t.Parallel()
	ctx, servers, root := t.Context(), e.Common(t), Root(t)
	named := renewed
	named.Label = "the holder"
	client := e.open(t, named, servers, root)
	named.Label = "the waiter"
	held := Lock(t, client, "shop/a b/1")
	Lock(t, client, "shop/2")
	Lock(t, client, "other")
	Unlock(t, Lock(t, client, "shop/free"))
	LockIn(t, e.open(t, named, servers, root), "shop/2")
	awaitWaiters(t, client, "shop/2", 1)
	var listed []redlatch.Listed
	var answers []redlatch.NodeAnswer
	var err error
	// A waiter on a busy machine may leave the queue for a moment, and join again, as an answer came late.
	Await(t, "they are listed", func() bool {
		listed, answers, err = client.List(ctx, "shop/*")
		return !late(err) && (err != nil || len(listed) == 2 && len(listed[0].Waiting) == 1)
	})
	if err != nil || len(listed) != 2 || len(answers) != 1 || answers[0].Err != nil {
		t.Fatalf("%+v, %v, %v", listed, answers, err)
	}
	for i, want := range []redlatch.Listed{{Name: "shop/2", Waiting: []redlatch.Waiter{{Label: "the waiter"}}}, {Name: "shop/a b/1"}} {
		got := listed[i]
		if got.Name != want.Name || got.Holder.Label != "the holder" || got.Holder.Since.IsZero() || got.Nodes != 1 || got.Foreign || got.Left <= 0 || got.Left > renewedTTL || len(got.Waiting) != len(want.Waiting) {
			t.Errorf("%+v", got)
		}
	}
	var waiting []redlatch.Waiter
	Await(t, "the waiter is told", func() bool {
		waiting, err = client.Waiters(ctx, "shop/2")
		return !late(err) && (err != nil || len(waiting) == 1)
	})
	if err != nil || waiting[0].Label != "the waiter" {
		t.Errorf("waiting: %v, %v", waiting, err)
	}
	Await(t, "the waiters are listed", func() bool { waiting, err = client.Waiters(ctx, "nobody's"); return !late(err) })
	if err != nil || len(waiting) != 0 {
		t.Errorf("waiting for nothing: %v, %v", waiting, err)
	}
	if _, err := client.Waiters(ctx, ""); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("waiting for a name that is none: %v", err)
	}
	if _, _, err := client.List(ctx, "["); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("a pattern that is none: %v", err)
	}
	Unlock(t, held)
}
