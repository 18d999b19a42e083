package redlatch_test

import (
	"errors"
	"fmt"
	"github.com/redlatch/redlatch/internal/hook"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// MaxTTL is changed by a reset of all nodes. Who has the new one is granted nothing before the
// longer of the two quarantines is over. Who has the old one is refused for as long as it
// differs, and goes on by itself when the deployment is set back.
func TestMaxTTLIsChangedForAll(t *testing.T) {
	t.Parallel()
	const short, long = time.Second, 3 * time.Second
	eachFlavor(t, func(t *testing.T, binary string) {
		for _, ttl := range [][2]time.Duration{{short, long}, {long, short}} {
			t.Run(fmt.Sprintf("from %v to %v", ttl[0], ttl[1]), func(t *testing.T) {
				t.Parallel()
				servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
				before := withMaxTTL(withQuarantine(redistest.URLs(servers)...), ttl[0])
				after := withMaxTTL(before, ttl[1])
				old, next := open(t, before), open(t, after)
				vouch(t, old, "n0", "n1", "n2")
				held := tryLock(t, old, "x", redlatch.WithoutRenewal())
				if _, err := tryInTime(t, next, "y"); !isDisagreement(err, ttl[0].String(), ttl[1].String()) {
					t.Fatalf("the new MaxTTL, before the change: %v", err)
				}

				since := serverTime(t, servers[0])
				for i := range servers {
					if err := next.Reset(t.Context(), fmt.Sprint("n", i)); err != nil {
						t.Fatal(err)
					}
				}
				if err := held.Extend(t.Context(), ttl[0]); !isDisagreement(err, ttl[0].String(), ttl[1].String()) && !errors.Is(err, redlatch.ErrLost) {
					t.Errorf("the old MaxTTL extends what it holds: %v", err)
				}
				refused := func(client *redlatch.Client) {
					t.Helper()
					if _, err := tryInTime(t, client, "y"); !isDisagreement(err, ttl[0].String(), ttl[1].String()) {
						t.Errorf("the old MaxTTL: %v", err)
					}
					if _, err := oneshot.New(client).Take(t.Context(), "y", "me", time.Second); !isDisagreement(err) {
						t.Errorf("the old MaxTTL takes: %v", err)
					}
					if extended, err := oneshot.New(client).Extend(t.Context(), "x", hook.LeaseOf(held).HolderID(), ttl[0]); extended || !isDisagreement(err) {
						t.Errorf("the old MaxTTL extends: %t, %v", extended, err)
					}
					if err := client.Admit(t.Context(), "n0"); !isDisagreement(err) {
						t.Errorf("the old MaxTTL admits: %v", err)
					}
				}
				refused(old)
				refused(open(t, before))
				if _, err := tryInTime(t, next, "y"); !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Fatalf("the new MaxTTL, right after the change: %v", err)
				}
				lock, err := next.Lock(within(t, 2*patience), "x")
				if err != nil {
					t.Fatal(err)
				}
				if held.Err() == nil {
					t.Error("the first holder has it still")
				}
				if passed := serverTime(t, servers[0]).Sub(since); passed < long+4*time.Second {
					t.Errorf("granted after %v, want %v", passed, long+4*time.Second)
				}
				refused(old)
				unlock(t, lock)

				// It is set back by somebody, who vouches that no lock is held.
				back := open(t, before)
				for i := range servers {
					if err := back.Reset(t.Context(), fmt.Sprint("n", i)); err != nil {
						t.Fatal(err)
					}
				}
				vouch(t, back, "n0", "n1", "n2")
				await(t, "the old client goes on", func() bool {
					lock, err := old.TryLock(t.Context(), "x")
					if err == nil {
						unlock(t, lock)
					}
					return err == nil
				})
				if _, err := tryInTime(t, next, "y"); !isDisagreement(err, ttl[0].String(), ttl[1].String()) {
					t.Errorf("the MaxTTL that is not the deployment's any more: %v", err)
				}
			})
		}
	})
}
