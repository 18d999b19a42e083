package restart

import (
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// A client finds all keys deleted, and what it then notes comes late. Meanwhile the server is vouched for, grants a lock,
// and its keys are deleted again. The quarantine counts from the note, not from what the client has found.
func TestLateNoteOfAQuarantine(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		const ttl = 8 * time.Second
		config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), ttl)
		proxy := redistest.NewProxy(t, server.Addr())
		met, late := make(chan struct{}), make(chan struct{})
		hold := sync.OnceFunc(func() {
			close(met)
			<-late
		})
		proxy.OnCommand(func(c redistest.Command) redistest.Action {
			if len(c.Args) > 1 && c.Args[1] == script.Quarantine.Text {
				hold()
			}
			return redistest.Pass
		})
		locktest.Do(t, server, "FLUSHALL")
		locktest.LockIn(t.Context(), locktest.Open(t, locktest.Through(config, proxy.URL())), "y")
		<-met
		found := locktest.ServerTime(t, server)
		other := locktest.Open(t, config)
		locktest.Vouch(t, other, "n0")
		locktest.Await(t, "a quarantine has passed", func() bool {
			return locktest.ServerTime(t, server).Sub(found) > ttl+6*time.Second
		})
		held := locktest.TryLock(t, other, "x", redlatch.WithoutRenewal())
		locktest.Do(t, server, "FLUSHALL")
		close(late)
		locktest.Await(t, "the note", func() bool { return locktest.Value(t, server, "redlatch:{"+config.Deployment+"}:quarantine") != "" })
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
		locktest.IsKeptOut(t, held, lock, err)
	})
}
