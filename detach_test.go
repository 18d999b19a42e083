package redlatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// A caller that waits in the same client behind a lock that is then detached gets it as any other caller does: here
// when its TTL is over, since nobody extends or releases it.
func TestWaitBehindADetachedLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl})
		lock, err := client.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := client.Lock(t.Context(), "name")
			got <- err
		}()
		synctest.Wait()
		start := time.Now()
		if _, err := lock.Detach(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-got:
			if took := time.Since(start); err != nil || took > ttl+time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		case <-time.After(time.Minute):
			t.Error("it still waits a minute later")
		}
	})
}
