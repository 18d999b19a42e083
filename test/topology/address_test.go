package topology

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// awaitLock tries until the client can have a lock. Its name is what it is called, so that no other is in its way: the release
// of one may not have reached the replica that was promoted then.
func awaitLock(t *testing.T, client *redlatch.Client, what string) {
	t.Helper()
	locktest.Await(t, what, func() bool {
		lock, err := client.TryLock(t.Context(), what)
		if err != nil {
			return false
		}
		locktest.Unlock(t, lock)
		return true
	})
}

// An address, such as a name in DNS, that leads to the promoted replica by now is connected to anew, though the connections
// to its former master stand.
func TestAddressLeadsToTheNewMaster(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, acknowledged := range []int{0, 1} {
			r := newReplicated(t, redistest.Options{Binary: binary})
			conf := r.config()
			conf.Replicas.Count = acknowledged
			client := locktest.Open(t, conf)
			awaitLock(t, client, "a lock")
			r.switchRoles(t)
			r.address.Retarget(r.replica.Addr())
			awaitLock(t, client, fmt.Sprintf("a lock at the new master, acknowledged by %d", acknowledged))
		}
	})
}

// A call that waits while the address leads to the former master goes on when it leads to the new one, also where the
// connection by which replicas are waited for led to the former one as well.
func TestACallWaitsForTheAddress(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, acknowledged := range []int{0, 1} {
			r := newReplicated(t, redistest.Options{Binary: binary})
			conf := r.config()
			conf.Replicas.Count = acknowledged
			client := locktest.Open(t, conf)
			locktest.Unlock(t, locktest.TryLock(t, client, "known"))
			r.switchRoles(t)
			report, waits := locktest.WhenWaiting(nil)
			outcome := locktest.LockIn(locktest.Within(t, locktest.Patience), client, "x", report)
			select {
			case <-waits:
				r.address.Retarget(r.replica.Addr())
			case o := <-outcome:
				t.Fatalf("acknowledged by %d: %v, %v before there was a master", acknowledged, o.Lock, o.Err)
			}
			o := <-outcome
			if o.Err != nil {
				t.Fatalf("acknowledged by %d: %v", acknowledged, o.Err)
			}
			locktest.Unlock(t, o.Lock)
		}
	})
}

// A client of package oneshot that only extends or only releases follows the address, too.
func TestOneShotFollowsTheAddress(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string]oneshot.Commands{"scripts": oneshot.CommandsScript, "transactions": oneshot.CommandsWatch} {
		for _, call := range []string{"extend", "release"} {
			t.Run(name+", "+call, func(t *testing.T) {
				t.Parallel()
				r := newReplicated(t, redistest.Options{})
				shots, err := oneshot.NewWith(locktest.Open(t, r.config()), oneshot.Config{Commands: commands})
				if err != nil {
					t.Fatal(err)
				}
				do := shots.Release
				if call == "extend" {
					do = func(ctx context.Context, name, id string) (bool, error) {
						return shots.Extend(ctx, name, id, time.Minute)
					}
				}
				await := func(master *redistest.Server) {
					t.Helper()
					locktest.Await(t, call, func() bool {
						locktest.Do(t, master, "SET", "x", "id", "PX", "60000")
						done, err := do(t.Context(), "x", "id")
						return done && err == nil
					})
				}
				for range 3 {
					await(r.master)
				}
				r.switchRoles(t)
				r.address.Retarget(r.replica.Addr())
				await(r.replica)
			})
		}
	}
}

// A release that met the former master, as a replica, is tried again at the new one, by a client that asks for no other lock.
func TestReleaseFollowsTheAddress(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.TTL, conf.MaxTTL = 4*locktest.Patience, 4*locktest.Patience
		lock := locktest.TryLock(t, locktest.Open(t, conf), "x", redlatch.WithoutRenewal())
		locktest.Await(t, "the replica has the key", func() bool { return locktest.Do(t, r.replica, "EXISTS", "x") == int64(1) })
		r.switchRoles(t)
		r.address.Retarget(r.replica.Addr())
		t.Logf("the first try: %v", lock.Unlock(t.Context()))
		locktest.Await(t, "the key is deleted at the new master", func() bool { return locktest.Do(t, r.replica, "EXISTS", "x") == int64(0) })
	})
}
