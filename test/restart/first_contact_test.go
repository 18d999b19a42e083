package restart

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server that no client has seen since its start votes at once if it has been up for the wait. Where nothing tells whether
// it was used or was a replica, the wait begins when a client sees it.
func TestFirstContact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command []string
		waits   bool
	}{
		"nothing was done to it": {command: []string{"PING"}},
		"scripts of others":      {command: []string{"EVAL", "return 1", "0"}},
		"FLUSHALL":               {[]string{"FLUSHALL"}, true},
		"FLUSHDB":                {[]string{"FLUSHDB"}, true},
		"CONFIG RESETSTAT":       {[]string{"CONFIG", "RESETSTAT"}, true},
		"SCRIPT FLUSH":           {[]string{"SCRIPT", "FLUSH"}, true},
		"REPLICAOF NO ONE":       {[]string{"REPLICAOF", "NO", "ONE"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				s := redistest.New(t, redistest.Options{Binary: binary})
				locktest.Do(t, s, c.command...)
				awaitUptime(t, s, locktest.RestartQuarantine)
				_, err := locktest.AwaitAnswer(t, locktest.Open(t, locktest.WithQuarantine(s.URL())), "x")
				switch {
				case !c.waits && err != nil:
					t.Error(err)
				case c.waits && !errors.Is(err, redlatch.ErrNotAdmitted):
					t.Errorf("%v, want ErrNotAdmitted", err)
				case c.waits:
					if left := locktest.VerdictOf(t, err, 0).Left; left > locktest.RestartQuarantine+2*time.Second {
						t.Errorf("it waits for %v, more than the page says", left)
					}
				}
			})
		})
	}
}
