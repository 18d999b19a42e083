package locking

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/oneshot"
)

// A list, a query and an observer say that readers have a lock, whatever the nodes' counters: they are no
// holder of another library.
func TestReadersAsOthersSeeThem(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	for i, s := range nodes { // each opens under another
		setCounter(t, s, t.Name(), []string{"5", "2000000000000000", "2000000000000007"}[i])
	}
	client := locktest.Open(t, c)
	reader := locktest.TryLock(t, client, t.Name(), redlatch.WithShared())
	defer locktest.Unlock(t, reader)
	locktest.AwaitOn(t, reader, nodes...)
	for i, s := range nodes {
		if i > 0 && locktest.Value(t, s, t.Name()) == locktest.Value(t, nodes[i-1], t.Name()) {
			t.Error("the counters are the same")
		}
	}
	locktest.Await(t, "it is listed", func() bool {
		listed, _, err := redlatch.List(t.Context(), c, t.Name())
		if err != nil || len(listed) != 1 || listed[0].Nodes != 3 {
			return false
		}
		if l := listed[0]; l.Foreign || !l.Holder.Shared || l.Left <= 0 {
			t.Fatalf("listed: %+v", l)
		}
		return true
	})
	for holder, err := range client.Observe(locktest.Within(t, locktest.Patience), t.Name()) {
		if err != nil {
			continue
		}
		if !holder.Shared {
			t.Errorf("an observer is told of %v", holder)
		}
		break
	}
	locktest.Await(t, "a quorum says so", func() bool {
		id, _, err := oneshot.New(client).Query(t.Context(), t.Name())
		return err == nil && id == vote.SharedMark
	})
}
