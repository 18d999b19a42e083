package redlatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// A lock that seems to end, and is extended before the client has looked into that, goes on being
// renewed.
func TestExtendedJustBeforeItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{TTL: 3 * time.Second})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		redlatch.RingInVain(lock)
		time.Sleep(time.Minute)
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
