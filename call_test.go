package redlatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// A call without a place in the queue rests for no longer than the lock in its way runs, give or take the shortest pause.
func TestRestUntilTheLockEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		other := client.Peer(redlatch.Config{})
		for range 20 {
			_, err := client.TryLock(t.Context(), "name", redlatch.WithTTL(2*time.Second), redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			next, err := other.Lock(t.Context(), "name", redlatch.WithoutQueue())
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 2*time.Second+20*time.Millisecond {
				t.Errorf("it had the lock after %v", took)
			}
			if err := next.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
