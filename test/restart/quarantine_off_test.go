package restart

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server has lost a lock of a large MaxTTL, and waits for its end. The quarantine is switched off, and on again with
// a smaller MaxTTL. The server waits for the rest all the same.
func TestQuarantineOffAndOnAgain(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		small := locktest.WithQuarantine(server.URL())
		held := lostByAFlush(t, server, locktest.WithMaxTTL(small, time.Minute))

		off := small
		off.NoQuarantine = true
		meanwhile := locktest.Open(t, off)
		if err := meanwhile.Reset(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		locktest.TryLock(t, meanwhile, "y") // the quarantine is off
		client := locktest.Open(t, small)
		if err := client.Reset(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		_, err := locktest.TryInTime(t, client, "x")
		waitsFor(t, err, held)
	})
}
