package restart

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server loses a lock, and its deployment is changed to a smaller MaxTTL while it is kept out. Then its clock is set
// back to before that, and it may restart. It is kept out for what was left of its quarantine all the same.
func TestClockSetBackAfterAReset(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary, ClockShim: true})
				small := locktest.WithQuarantine(server.URL())
				large := locktest.WithMaxTTL(small, time.Minute)
				old := locktest.Open(t, large)
				locktest.Vouch(t, old, "n0")
				held := locktest.TryLock(t, old, "x", redlatch.WithoutRenewal())
				locktest.Do(t, server, "FLUSHALL")
				if _, err := locktest.AwaitAnswer(t, old, "y"); !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Fatalf("after the flush: got %v, want ErrNotAdmitted", err)
				}
				client := locktest.Open(t, small)
				if err := client.Reset(t.Context(), "n0"); err != nil {
					t.Fatal(err)
				}
				if err := server.StepClock(-time.Minute); err != nil {
					t.Fatal(err)
				}
				if restarts {
					locktest.Do(t, server, "SAVE")
					locktest.KillAndRestart(t, server)
				}
				lock, err := client.Lock(locktest.Within(t, 3*locktest.RestartQuarantine), "x")
				switch {
				case err == nil && held.Err() == nil:
					t.Errorf("%q has two holders: the first for another %v", lock.Name(), time.Until(held.Until()))
				case err == nil:
					t.Error("it was granted too early")
				case !errors.Is(err, redlatch.ErrNotAdmitted):
					t.Errorf("%v, want ErrNotAdmitted", err)
				}
			})
		})
	}
}
