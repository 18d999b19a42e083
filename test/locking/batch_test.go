package locking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Many callers lock many names at once, each name wanted by several clients: their
// steps go together, and each lock is as good as one that is locked alone.
func TestManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			const callers, names, rounds = 64, 48, 12
			nodes := redistest.Nodes(t, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			clients := []*redlatch.Client{locktest.OpenBatched(t, c), locktest.OpenBatched(t, c)}
			gates := make([]locktest.Turnstile, names)
			for i := range gates {
				gates[i].T = t
			}
			before := locktest.ScriptCalls(t, nodes)
			var group sync.WaitGroup
			for i := range callers {
				group.Go(func() {
					for round := range rounds {
						k := (i + round*7) % names
						lock, err := clients[0].Lock(locktest.Within(t, 2*locktest.Patience), fmt.Sprint(t.Name(), k))
						if err != nil {
							t.Error(err)
							return
						}
						gates[k].Pass(lock, fmt.Sprint(i))
					}
				})
			}
			group.Wait()
			commands := locktest.ScriptCalls(t, nodes)[0] - before[0]
			if locks := callers * rounds; commands >= 2*locks {
				t.Errorf("%d commands for %d locks: nothing went together", commands, locks)
			} else {
				t.Logf("%d commands for %d locks", commands, locks)
			}
			for i := range callers {
				group.Go(func() {
					for round := range rounds {
						k := (i/2 + round*7) % names
						lock, err := clients[i%2].Lock(locktest.Within(t, 2*locktest.Patience), fmt.Sprint(t.Name(), k))
						if err != nil {
							t.Error(err)
							return
						}
						gates[k].Pass(lock, fmt.Sprint(i))
					}
				})
			}
			group.Wait()
			for _, s := range nodes {
				for k := range names {
					locktest.AwaitValue(t, s, fmt.Sprint(t.Name(), k), "")
				}
			}
		})
	}
}

// What goes together has an outcome for each: one name is of another type, or its counter, one held,
// one is locked twice, one not this user's, and the rest are free.
func TestTogetherWithWhatIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Users: []string{"alice on >secret ~free* ~held ~list ~twice ~uncounted ~redlatch:* &* +@all"}})
	locktest.Do(t, server, "RPUSH", tokenKey("uncounted"), "x")
	for _, forbidden := range []bool{false, true} {
		client := locktest.OpenBatched(t, locktest.Config(server.URLAs("alice", "secret")))
		locktest.Do(t, server, "DEL", "held", "list")
		locktest.Do(t, server, "SET", "held", "theirs")
		locktest.Do(t, server, "RPUSH", "list", "x")
		names := []string{"list", "held", "twice", "twice", "uncounted"}
		for i := range 20 {
			names = append(names, fmt.Sprint("free", i))
		}
		if forbidden {
			names = append(names, "other")
		}
		var group sync.WaitGroup
		errs, locks := make([]error, len(names)), make([]*redlatch.Lock, len(names))
		for i, name := range names {
			group.Go(func() { locks[i], errs[i] = locktest.TryInTime(t, client, name) })
		}
		group.Wait()
		twice := 0
		for i, name := range names {
			switch {
			case name == "twice":
				if errs[i] == nil {
					twice++
				} else if !errors.Is(errs[i], redlatch.ErrHeld) {
					t.Errorf("twice: %v", errs[i])
				}
			case name == "held" && !errors.Is(errs[i], redlatch.ErrHeld),
				name == "list" && (!errors.Is(errs[i], redlatch.ErrRefused) || !strings.Contains(errs[i].Error(), "WRONGTYPE")),
				name == "uncounted" && (!errors.Is(errs[i], redlatch.ErrRefused) || !strings.Contains(errs[i].Error(), tokenKey(name)+" is of another type")),
				name == "other" && (!errors.Is(errs[i], redlatch.ErrRefused) || !strings.Contains(errs[i].Error(), "NOPERM")),
				strings.HasPrefix(name, "free") && errs[i] != nil:
				t.Errorf("forbidden %t: %s: %v", forbidden, name, errs[i])
			}
		}
		if twice != 1 {
			t.Errorf("%d have what was locked twice", twice)
		}
		for _, lock := range locks {
			if lock != nil {
				group.Go(func() {
					if err := lock.Unlock(context.Background()); err != nil {
						t.Errorf("%s: %v", lock.Name(), err)
					}
				})
				if forbidden { // what is refused goes together with releases, too
					group.Go(func() {
						if _, err := locktest.TryInTime(t, client, "other"); !errors.Is(err, redlatch.ErrRefused) {
							t.Errorf("other, beside a release: %v", err)
						}
					})
				}
			}
		}
		group.Wait()
		for _, name := range names[2:] {
			if v := locktest.Value(t, server, name); v != "" {
				t.Errorf("left: %s is %q", name, v)
			}
		}
	}
}

// aloneAndTogether open a client whose steps are sent one by one, and one whose callers are
// always taken for many.
func aloneAndTogether() map[string]func(t *testing.T, c redlatch.Config) *redlatch.Client {
	return map[string]func(t *testing.T, c redlatch.Config) *redlatch.Client{"alone": locktest.Open, "together": locktest.OpenBatched}
}

// Where a counter is not one nobody is given the lock, alone or together with others, and
// nothing is left.
func TestLocksWithoutCounters(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for name, opens := range aloneAndTogether() {
		client := opens(t, locktest.Config(server.URL()))
		for i := range 20 {
			locktest.Do(t, server, "RPUSH", node.CounterKey(fmt.Sprint(name, i)), "x")
		}
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				lock, err := locktest.TryInTime(t, client, fmt.Sprint(name, i))
				if lock != nil || !errors.Is(err, redlatch.ErrRefused) {
					t.Errorf("%s: %v, %v", name, lock, err)
				}
			})
		}
		group.Wait()
		for i := range 20 {
			if v := locktest.Value(t, server, fmt.Sprint(name, i)); v != "" {
				t.Errorf("%s: %s is left", name, v)
			}
		}
	}
}

// The node hangs with many steps under way: all callers learn it in time, and when it
// goes on nothing is left on it.
func TestManyCallersOfANodeThatHangs(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := locktest.Config(server.URL())
	c.NodeTimeout = 200 * time.Millisecond
	client := locktest.OpenBatched(t, c)
	locktest.Unlock(t, locktest.TryLock(t, client, "before"))
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 60 {
		group.Go(func() {
			if lock, err := client.TryLock(locktest.Within(t, locktest.Patience), fmt.Sprint("name", i)); lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		locktest.AwaitValue(t, server, fmt.Sprint("name", i), "")
	}
	locktest.Await(t, "a lock", func() bool {
		lock, err := client.TryLock(locktest.Within(t, locktest.Patience), "after")
		return err == nil && lock.Unlock(context.Background()) == nil
	})
}
