package sim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

// A replica that took its server's place, and has forgotten that, says what it received before, as real ones do: it is in
// quarantine, though it has been up for long.
func TestSimPromotionThatIsForgotten(t *testing.T) {
	t.Parallel()
	for name, promote := range map[string]func(n *sim.Node){
		"promoted":                 func(n *sim.Node) { n.Promote(0) },
		"another fails over to it": func(n *sim.Node) { n.FailOver(true, 0) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := sim.New(1, sim.None)
			defer w.End()
			n := w.NewNode(sim.Always, true, 1, 0, time.Hour)
			m := w.NewMachine(1, 0, []sim.Network{{Delay: time.Millisecond}})
			client, err := openInWorld(redlatch.Config{TTL: time.Second, MaxTTL: time.Second}, w, m, false)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			try := func() error {
				lock, err := client.TryLock(context.Background(), "x")
				if err == nil {
					err = lock.Unlock(context.Background())
				}
				return err
			}
			if err := try(); err != nil {
				t.Fatalf("before it is %s: %v", name, err)
			}
			promote(n)
			n.Rename()
			for err = try(); errors.Is(err, redlatch.ErrNoQuorum); err = try() { // the connection has broken
			}
			if !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
