package topology

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A lock is extended where its server is out of memory, also if replicas have to acknowledge that: it takes no memory.
func TestAcknowledgedExtensionTakesNoMemory(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.TTL, conf.MaxTTL = 4*locktest.Patience, 4*locktest.Patience
		conf.Replicas.Count = 1
		client := locktest.Open(t, conf)
		lock := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		locktest.Do(t, r.master, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		locktest.Do(t, r.master, "CONFIG", "SET", "maxmemory", "1")
		locktest.Await(t, "it is extended", func() bool {
			err := lock.Extend(locktest.Within(t, locktest.Patience), conf.TTL)
			if err != nil && strings.Contains(err.Error(), "OOM") {
				t.Fatal(err)
			}
			return err == nil
		})
	})
}

// The connection for WAIT led to the former master while that was still one, as the connection for votes was made anew. No
// vote counts, and the error says what to do. The connection follows the address when the former master is a replica.
func TestAcknowledgementsFollowTheAddress(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.NoQuarantine = true
		conf.Replicas.Count = 1
		client := locktest.Open(t, conf)
		locktest.Unlock(t, locktest.TryLock(t, client, "known"))

		locktest.Do(t, r.replica, "REPLICAOF", "NO", "ONE")
		locktest.Do(t, r.replica, "SET", "held", "theirs")
		r.address.OnCommand(func(c redistest.Command) redistest.Action {
			if c.Name() != "EVALSHA" {
				return redistest.Pass
			}
			r.address.OnCommand(nil)
			r.address.Retarget(r.replica.Addr())
			return redistest.CutBefore
		})
		locktest.Await(t, "the new master votes", func() bool {
			_, err := client.TryLock(t.Context(), "held")
			return errors.Is(err, redlatch.ErrHeld)
		})
		info, err := r.master.Info("server")
		if err != nil {
			t.Fatal(err)
		}
		cause := fmt.Sprintf("that with run_id %s was asked for its replicas", info["run_id"])
		awaitNotReplicated(t, cause+": if this goes on, one is a former master, to which a connection still leads: make it a replica, or end it",
			func() error { return locktest.ErrorOf(client.TryLock(t.Context(), "x")) })
		locktest.AwaitValue(t, r.replica, "x", "")
		locktest.Do(t, r.master, "REPLICAOF", "127.0.0.1", fmt.Sprint(r.replica.Port()))
		awaitLock(t, client, "a lock at the new master")
	})
}

// The user may no longer wait for replicas. A caller is told so, and does not wait for ever. What is held can be released, and
// nothing is left behind.
func TestAcknowledgementIsForbiddenLater(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.NoQuarantine = true
		conf.Replicas.Count = 1
		client := locktest.Open(t, conf)
		held := locktest.TryLock(t, client, "held", redlatch.WithoutRenewal())

		locktest.Do(t, r.master, "ACL", "SETUSER", "default", "-wait")
		lock, err := client.Lock(locktest.Within(t, locktest.Patience), "x")
		if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%v, %v", lock, err)
		}
		locktest.Unlock(t, held)
		for _, key := range []string{"held", "x"} {
			locktest.AwaitValue(t, r.master, key, "")
		}
		locktest.Do(t, r.master, "ACL", "SETUSER", "default", "+wait")
		awaitLock(t, client, "the right is back")
	})
}
