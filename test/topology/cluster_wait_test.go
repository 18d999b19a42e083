package topology

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// newOnce starts a Cluster whose masters are waited for 5 s, as restartTTL has it.
func newOnce(t *testing.T, binary string) *hurtCluster {
	t.Helper()
	c := newHurtCluster(t, binary, 1, locktest.RestartTTL)
	if c.d != locktest.RestartQuarantine {
		t.Fatalf("the wait is %v", c.d)
	}
	return c
}

// What a master may have forgotten is waited for once, from when a client first saw it,
// and then every slot of it votes. The wait is D by the master's own time.
func TestClusterWaitsOnceForAMaster(t *testing.T) {
	t.Parallel()
	for what, happen := range map[string]func(t *testing.T, c *hurtCluster) *redistest.Server{
		"FLUSHALL": func(t *testing.T, c *hurtCluster) *redistest.Server {
			locktest.Do(t, c.Masters[0], "FLUSHALL")
			return c.Masters[0]
		},
		"failover": func(t *testing.T, c *hurtCluster) *redistest.Server {
			must(t, c.FailOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
			return c.Replicas[0]
		},
		"restart": func(t *testing.T, c *hurtCluster) *redistest.Server {
			if err := c.RestartEmpty(t.Context(), c.Masters[0]); err != nil {
				t.Fatal(err)
			}
			must(t, c.AwaitServing(locktest.Within(t, locktest.Patience)))
			return c.Masters[0]
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := newOnce(t, binary)
				client := locktest.Open(t, c.config)
				c.admit(t, client)
				for i := range c.Masters {
					locktest.Unlock(t, locktest.TryLock(t, client, storm.NameAt(i)))
				}
				since := locktest.ServerTime(t, c.Masters[1]) // the servers have one clock
				master := happen(t, c)
				_, err := locktest.AwaitAnswer(t, client, storm.NameAt(0))
				if !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Fatalf("right after: %v, want ErrNotAdmitted", err)
				}
				if left := locktest.VerdictOf(t, err, 0).Left; left > c.d {
					t.Errorf("it says that %v are left, want %v at most", left, c.d)
				}
				c.atOnce(t, client, storm.NamesAt(1, 2)) // of another master

				lock, err := client.Lock(locktest.Within(t, c.d+locktest.Patience), storm.NameAt(0))
				if err != nil {
					t.Fatal(err)
				}
				if passed := locktest.ServerTime(t, master).Sub(since); passed < c.d {
					t.Errorf("it voted after %v, want %v", passed, c.d)
				}
				locktest.Unlock(t, lock)
				c.atOnce(t, client, storm.NamesAt(0, 5))
				c.atOnce(t, locktest.Open(t, c.config), storm.NamesAt(0, 8)[5:])
			})
		})
	}
}

// The first use of a deployment waits once for each master, whatever its uptime, and for
// all of them in parallel. Then every slot votes.
func TestClusterFirstUse(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(map[bool]string{false: "fresh", true: "old"}[old], func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				const tries = 10 // a busy machine may take as long as for one after the other, but not each time
				for try := 1; ; try++ {
					passed, wait := firstUse(t, binary, old)
					if passed <= 2*wait || t.Failed() {
						return
					}
					if try == tries {
						t.Fatalf("all masters together were waited for %v, want %v", passed, wait)
					}
				}
			})
		})
	}
}

// firstUse returns how long all masters together were waited for, and how long one is to be.
func firstUse(t *testing.T, binary string, old bool) (passed, wait time.Duration) {
	c := newOnce(t, binary)
	if old {
		c.uptime(t, c.Masters...)
	}
	start := locktest.ServerTime(t, c.Masters[0]) // before anybody has seen them
	client := locktest.Open(t, c.config)
	ctx := locktest.Within(t, c.d+locktest.Patience)
	var all sync.WaitGroup
	for i, s := range c.Masters { // which have one clock
		all.Go(func() {
			lock, err := client.Lock(ctx, storm.NameAt(i))
			if err != nil {
				t.Error(err)
				return
			}
			if reply, err := s.Do("TIME"); err != nil {
				t.Error(err)
			} else if passed := storm.TimeOf(reply).Sub(start); passed < c.d {
				t.Errorf("the first lock at master %d was granted after %v, want %v", i, passed, c.d)
			}
			lock.Unlock(ctx)
		})
	}
	all.Wait()
	passed = locktest.ServerTime(t, c.Masters[0]).Sub(start)
	for i := range c.Masters {
		c.atOnce(t, client, storm.NamesAt(i, 3))
		c.atOnce(t, locktest.Open(t, c.config), storm.NamesAt(i, 5)[3:])
	}
	return passed, c.d
}

// The record of a master that gives slots away is in the last of its slots. If that one is moved, the master waits where
// nobody has locked before, as the page says; if another one is, it does not.
func TestClusterWaitsForAMasterThatGivesItsLastSlot(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/restarts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, last := range []bool{false, true} {
		t.Run(map[bool]string{false: "first", true: "last"}[last], func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := newHurtCluster(t, binary, 0, 3*fixTTL)
				client := locktest.Open(t, c.config)
				c.admit(t, client)
				locktest.Unlock(t, locktest.TryLock(t, client, storm.NameAt(0)))
				slots, err := c.SlotsOf(c.Masters[0])
				must(t, err)
				slot := slots[0]
				if last {
					slot = slots[len(slots)-1]
				}
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), slot, c.Masters[1], nil))
				_, err = locktest.AwaitAnswer(t, client, storm.NamesAt(0, 1)[0])
				switch {
				case !last && err != nil:
					t.Errorf("a name not used before: %v", err)
				case last && errors.Is(err, redlatch.ErrNotAdmitted) && !strings.Contains(string(page), "if its last slot was moved"):
					t.Errorf("%v, and docs/restarts.md does not say so", err)
				}
				if _, err := locktest.AwaitAnswer(t, client, storm.NameAt(0)); err != nil {
					t.Errorf("a name in use: %v", err)
				}
			})
		})
	}
}

// Who vouches for a Cluster speaks for all slots of all its masters, used or not, and
// for as long as they run.
func TestClusterAdmitDoesNotLapse(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newOnce(t, binary)
		client := locktest.Open(t, c.config)
		for _, s := range c.Masters { // whose uptime is then no excuse
			locktest.Do(t, s, "FLUSHALL")
		}
		c.admit(t, client)
		for i := range c.Masters {
			c.atOnce(t, client, storm.NamesAt(i, 2))
			c.atOnce(t, locktest.Open(t, c.config), storm.NamesAt(i, 4)[2:])
		}
		since := locktest.ServerTime(t, c.Masters[0])
		for locktest.ServerTime(t, c.Masters[0]).Sub(since) < 2*c.d+2*time.Second {
			storm.Rest(locktest.Within(t, locktest.Patience), 100*time.Millisecond)
		}
		for i := range c.Masters {
			c.atOnce(t, client, storm.NamesAt(i, 8)[4:6])
			c.atOnce(t, locktest.Open(t, c.config), storm.NamesAt(i, 8)[6:])
		}
	})
}

// What an operator has said is void for what happens after it.
func TestClusterAdmitIsForThisRun(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newOnce(t, binary)
		client := locktest.Open(t, c.config)
		c.admit(t, client)
		c.atOnce(t, client, storm.NamesAt(0, 1))
		must(t, c.FailOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
		for _, name := range storm.NamesAt(0, 3) {
			if lock, err := locktest.AwaitAnswer(t, client, name); !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Fatalf("%s after a failover: lock %v, error %v, want ErrNotAdmitted", name, lock, err)
			}
		}
		c.admit(t, client)
		c.atOnce(t, client, storm.NamesAt(0, 5))
		if err := client.Admit(context.WithoutCancel(t.Context()), "n0"); err != nil {
			t.Error(err)
		}
	})
}
