package restart

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Clients that differ in what each goes by alone exclude each other. The page has a row of such settings.
func TestClientsThatDifferExcludeEachOther(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary, Users: []string{"app on >p ~* &* +@all"}})
		for _, s := range servers {
			redistest.NewReplica(t, s)
		}
		c := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), locktest.TTL)
		locktest.Vouch(t, locktest.Open(t, c), "n0", "n1", "n2")
		var users []string
		for _, s := range servers {
			users = append(users, s.URLAs("app", "p"))
		}
		addresses := locktest.ProxyURLs(redistest.Proxies(t, servers))
		_, row, _ := strings.Cut(restartsPage(t), "| they differ in |")
		row, _, _ = strings.Cut(row, "each goes by its own")
		for said, differ := range map[string]func(*redlatch.Config){
			"`TTL`":         func(c *redlatch.Config) { c.TTL = c.MaxTTL / 2 },
			"`MaxHold`":     func(c *redlatch.Config) { c.MaxHold = time.Hour / 2 },
			"`NodeTimeout`": func(c *redlatch.Config) { c.NodeTimeout /= 2 },
			"`Replicas`": func(c *redlatch.Config) {
				c.NodeTimeout, c.Replicas.Count, c.Replicas.Timeout = 400*time.Millisecond, 1, 300*time.Millisecond
			},
			"`Label`":      func(c *redlatch.Config) { c.Label = "another" },
			"`Strict`":     func(c *redlatch.Config) { c.Strict = true },
			"user":         func(c *redlatch.Config) { *c = locktest.Through(*c, users...) },
			"address":      func(c *redlatch.Config) { *c = locktest.Through(*c, addresses...) },
			"`Deployment`": func(c *redlatch.Config) { c.Deployment += "-other" },
		} {
			if said != "`Deployment`" && !strings.Contains(row, said) {
				t.Errorf("the page does not name %s", said)
			}
			other := c
			differ(&other)
			one, two := locktest.Open(t, c), locktest.Open(t, other)
			if other.Deployment != c.Deployment {
				locktest.Vouch(t, two, "n0", "n1", "n2")
			}
			for range 2 {
				// It waits: on a busy machine, keys of the calls before are still on one node.
				held, err := one.Lock(locktest.Within(t, locktest.Patience), "job")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := locktest.TryInTime(t, two, "job"); !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("they differ in %s: %v, want ErrHeld", said, err)
				}
				locktest.Unlock(t, held)
				one, two = two, one
			}
		}
	})
}

// A call that waits is told of a change of the deployment, but not while its own client has the lock: the page says so. What was
// held before can be seen, and is released.
func TestWaitingWhileADeploymentIsChanged(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"one server": 1, "three": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				servers := redistest.Nodes(t, n, redistest.Options{Binary: binary})
				c := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), locktest.TTL)
				holder, waiter := locktest.Open(t, c), locktest.Open(t, c)
				locktest.Vouch(t, holder, c.Nodes...)
				held := locktest.TryLock(t, holder, "job")
				var waiting [3]<-chan locktest.Outcome
				for i, options := range [][]redlatch.Option{nil, {redlatch.WithoutQueue()}, {redlatch.WithShared()}} {
					report, waits := locktest.WhenWaiting(nil)
					waiting[i] = locktest.LockIn(locktest.Within(t, locktest.Patience), waiter, "job", append(options, report)...)
					<-waits
				}
				report, waits := locktest.WhenWaiting(nil)
				own := locktest.LockIn(locktest.Within(t, 2*locktest.Patience), holder, "job", report)
				<-waits
				next := locktest.Open(t, locktest.WithMaxTTL(c, 2*locktest.TTL))
				reset(t, next, c.Nodes...)
				for i, outcome := range waiting {
					if o := <-outcome; !isDisagreement(o.Err, "MaxTTL 1m0s", "MaxTTL 2m0s") {
						t.Errorf("waiter %d: %v, %v", i, o.Lock, o.Err)
					}
				}
				if err := held.Err(); err != nil {
					t.Error(err)
				}
				if found, _, err := waiter.List(t.Context(), "*"); err != nil || len(found) != 1 {
					t.Errorf("list: %v, %v", found, err)
				}
				if len(own) == 0 && !strings.Contains(restartsPage(t), "its own client has the lock") {
					t.Error("a call that waits for a lock of its own client is told nothing, and the page does not say so")
				}
				locktest.Unlock(t, held)
				if o := <-own; !isDisagreement(o.Err, "MaxTTL 1m0s", "MaxTTL 2m0s") {
					t.Errorf("behind a lock of its own client: %v, %v", o.Lock, o.Err)
				}
				for _, s := range servers {
					locktest.AwaitValue(t, s, "job", "")
				}
			})
		})
	}
}
