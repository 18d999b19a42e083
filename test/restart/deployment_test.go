package restart

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// MaxTTL is changed by a reset of all nodes. Who has the new one is granted nothing before the
// longer of the two quarantines is over. Who has the old one is refused for as long as it
// differs, and goes on by itself when the deployment is set back.
func TestMaxTTLIsChangedForAll(t *testing.T) {
	t.Parallel()
	const short, long = time.Second, 3 * time.Second
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, ttl := range [][2]time.Duration{{short, long}, {long, short}} {
			t.Run(fmt.Sprintf("from %v to %v", ttl[0], ttl[1]), func(t *testing.T) {
				t.Parallel()
				servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
				before := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), ttl[0])
				after := locktest.WithMaxTTL(before, ttl[1])
				old, next := locktest.Open(t, before), locktest.Open(t, after)
				locktest.Vouch(t, old, "n0", "n1", "n2")
				held := locktest.TryLock(t, old, "x", redlatch.WithoutRenewal())
				if _, err := locktest.TryInTime(t, next, "y"); !isDisagreement(err, ttl[0].String(), ttl[1].String()) {
					t.Fatalf("the new MaxTTL, before the change: %v", err)
				}

				since := locktest.ServerTime(t, servers[0])
				for i := range servers {
					if err := next.Reset(t.Context(), fmt.Sprint("n", i)); err != nil {
						t.Fatal(err)
					}
				}
				if err := locktest.InTime(func() error { return held.Extend(t.Context(), ttl[0]) }); !isDisagreement(err, ttl[0].String(), ttl[1].String()) && !errors.Is(err, redlatch.ErrLost) {
					t.Errorf("the old MaxTTL extends what it holds: %v", err)
				}
				refused := func(client *redlatch.Client) {
					t.Helper()
					if _, err := locktest.TryInTime(t, client, "y"); !isDisagreement(err, ttl[0].String(), ttl[1].String()) {
						t.Errorf("the old MaxTTL: %v", err)
					}
					take := func() error { return errorOf(oneshot.New(client).Take(t.Context(), "y", "me", time.Second)) }
					if err := locktest.InTime(take); !isDisagreement(err) {
						t.Errorf("the old MaxTTL takes: %v", err)
					}
					extend := func() error {
						return errorOf(oneshot.New(client).Extend(t.Context(), "x", hook.LeaseOf(held).HolderID(), ttl[0]))
					}
					if err := locktest.InTime(extend); !isDisagreement(err) {
						t.Errorf("the old MaxTTL extends: %v", err)
					}
					if err := client.Admit(t.Context(), "n0"); !isDisagreement(err) {
						t.Errorf("the old MaxTTL admits: %v", err)
					}
				}
				refused(old)
				refused(locktest.Open(t, before))
				early, err := locktest.TryInTime(t, next, "y")
				switch passed := locktest.ServerTime(t, servers[0]).Sub(since); {
				case err == nil && passed >= long+4*time.Second: // a busy machine
					locktest.Unlock(t, early)
				case !errors.Is(err, redlatch.ErrNotAdmitted):
					t.Fatalf("the new MaxTTL, %v after the change: %v", passed, err)
				}
				lock, err := next.Lock(locktest.Within(t, 2*locktest.Patience), "x")
				if err != nil {
					t.Fatal(err)
				}
				if held.Err() == nil {
					t.Error("the first holder has it still")
				}
				if passed := locktest.ServerTime(t, servers[0]).Sub(since); passed < long+4*time.Second {
					t.Errorf("granted after %v, want %v", passed, long+4*time.Second)
				}
				refused(old)
				locktest.Unlock(t, lock)

				// It is set back by somebody, who vouches that no lock is held.
				back := locktest.Open(t, before)
				for i := range servers {
					if err := back.Reset(t.Context(), fmt.Sprint("n", i)); err != nil {
						t.Fatal(err)
					}
				}
				locktest.Vouch(t, back, "n0", "n1", "n2")
				locktest.Await(t, "the old client goes on", func() bool {
					lock, err := old.TryLock(t.Context(), "x")
					if err == nil {
						locktest.Unlock(t, lock)
					}
					return err == nil
				})
				if _, err := locktest.TryInTime(t, next, "y"); !isDisagreement(err, ttl[0].String(), ttl[1].String()) {
					t.Errorf("the MaxTTL that is not the deployment's any more: %v", err)
				}
			})
		}
	})
}
