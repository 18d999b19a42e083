package locking

import (
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Two others have one node each of three, and nobody the lock, as where several try at the same
// moment: one who does not wait tries again, and has it when they have given up.
func TestTryLockWhereVotesAreSplit(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	locktest.Unlock(t, locktest.TryLock(t, client, "warm"))
	// A busy machine may take longer than these keys last to come to the first try: again, until
	// one try has met them.
	locktest.Await(t, "a try that met a split vote", func() bool {
		before := client.Stats().Tries
		for i, holder := range []string{"one", "another"} {
			if _, err := nodes[i].Do("SET", "x", holder, "PX", "60"); err != nil {
				t.Fatal(err)
			}
		}
		lock, err := client.TryLock(t.Context(), "x")
		if err != nil {
			return false
		}
		locktest.Unlock(t, lock)
		return client.Stats().Tries > before+1
	})
}

// One who has a quorum of the nodes is not waited for.
func TestTryLockWhereOneHasIt(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	locktest.Unlock(t, locktest.TryLock(t, client, "warm"))
	for _, node := range nodes[:2] {
		if _, err := node.Do("SET", "x", "one", "PX", "60000"); err != nil {
			t.Fatal(err)
		}
	}
	locktest.Await(t, "the nodes have answered", func() bool {
		before := client.Stats().Tries
		_, err := client.TryLock(t.Context(), "x")
		if locktest.Late(err) {
			return false
		}
		if !errors.Is(err, redlatch.ErrHeld) {
			t.Fatalf("%v, want ErrHeld", err)
		}
		if tries := client.Stats().Tries - before; tries != 1 {
			t.Errorf("%d tries for a lock that another has", tries)
		}
		return true
	})
}
