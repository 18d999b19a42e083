package restart

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Somebody makes the key of readers persistent, and the server saves it. It restarts from that file when a writer has had
// the lock since. Readers who come then do not join those of before, whose tokens are smaller than the writer's.
func TestPersistentKeyOfReadersIsBack(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		client := locktest.Open(t, locktest.WithQuarantine(server.URL()))
		locktest.Vouch(t, client, "n0")
		var reader *redlatch.Lock
		locktest.Await(t, "the key is persistent", func() bool {
			reader = locktest.TryLock(t, client, "x", redlatch.WithShared(), redlatch.WithoutRenewal())
			return locktest.Do(t, server, "PERSIST", "x") == int64(1)
		})
		locktest.Do(t, server, "SAVE")
		_ = reader.Unlock(t.Context()) // else its client would release it when its time is over
		locktest.Do(t, server, "DEL", "x")
		writer := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		locktest.KillAndRestart(t, server)
		if locktest.Value(t, server, "x") == "" {
			t.Fatal("the key is not back")
		}
		later, err := client.RLock(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), "x")
		if err != nil {
			t.Fatal(err)
		}
		if later.Token() <= writer.Token() {
			t.Errorf("a reader has the token %d, after a writer with %d", later.Token(), writer.Token())
		}
	})
}
