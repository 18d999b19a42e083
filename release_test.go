package redlatch_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
)

// Where a node that does not answer a release may have woken up a client, which takes over what the others do not have, the
// error says which nodes have deleted the lock, and of the others nothing: what they had was perhaps that client's.
func TestUnlockInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := openNodes(t, redlatch.Config{}, 4, "name")
		lock, err := o.client.TryLock(t.Context(), "name", redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		o.others[0].Set("name", "other", time.Minute)
		o.others[1].Delete("name", hook.LeaseOf(lock).HolderID(), "name")
		o.others[2].link.Delay(time.Hour) // longer than anybody waits for an answer
		err = lock.Unlock(t.Context())
		if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
			t.Error(err)
		}
		granted := 0
		for _, a := range locktest.FailureOf(t, err).Nodes {
			switch {
			case a.Verdict == redlatch.VoteGranted:
				granted++
			case a.Verdict != redlatch.VoteUnknown || a.Err != nil || a.Holder.ID != "":
				t.Errorf("%v", a)
			}
		}
		if granted != 1 {
			t.Errorf("%d nodes have deleted it: %v", granted, err)
		}
	})
}
