package locking

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// One node has another's key, one cannot be reached: to prolong or to release is not held
// up by the other, but has no quorum.
func TestAnotherHolderIsNotInTheWay(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
	take := t.Name() + "/take"
	locktest.AwaitOn(t, lock, nodes...)
	locktest.Await(t, "it is taken", func() bool { // a busy machine's nodes may be late
		ok, err := oneshot.New(client).Take(t.Context(), take, "id", locktest.TTL)
		if err != nil && !locktest.Late(err) {
			t.Fatal(err)
		}
		return ok
	})
	for _, name := range []string{lock.Name(), take} {
		for _, s := range nodes {
			locktest.Await(t, "all nodes have it", func() bool { return locktest.Value(t, s, name) != "" })
		}
		locktest.Do(t, nodes[1], "SET", name, "theirs", "PX", "60000")
	}
	if err := proxies[2].Refuse(true); err != nil {
		t.Fatal(err)
	}
	proxies[2].Cut()
	for _, call := range []struct {
		what string
		err  func() error
	}{
		{"Extend", func() error { return lock.Extend(t.Context(), locktest.TTL) }},
		{"Unlock", func() error { return lock.Unlock(t.Context()) }},
		{"ExtendTake", func() error {
			return locktest.ErrorOf(oneshot.New(client).Extend(t.Context(), take, "id", 20*time.Second))
		}},
		{"Release", func() error { return locktest.ErrorOf(oneshot.New(client).Release(t.Context(), take, "id")) }},
		{"Query", func() error { _, _, err := oneshot.New(client).Query(context.Background(), take); return err }},
	} {
		if err := call.err(); !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("%s: %v", call.what, err)
		}
	}
	for _, name := range []string{lock.Name(), take} {
		for _, s := range nodes {
			locktest.Do(t, s, "DEL", name)
		}
	}
}
