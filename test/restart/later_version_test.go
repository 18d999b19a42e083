package restart

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// raise does what a later version's Reset would: it records a protocol that this version does not know, and
// takes the admission away.
func raise(t *testing.T, deployment string, servers ...*redistest.Server) {
	t.Helper()
	prefix := fmt.Sprintf("redlatch:{%s}:", deployment)
	for _, s := range servers {
		record, found := strings.CutSuffix(locktest.Value(t, s, prefix+"deployment"), "}")
		if !found {
			t.Fatalf("%s has the record %q", s.Addr(), record)
		}
		locktest.Do(t, s, "SET", prefix+"deployment", record+`,"protocol":1}`)
		locktest.Do(t, s, "DEL", prefix+"admitted")
	}
}

// saysUpdate reports whether err, which no waiting cures, says that this version is too old, and advises nothing else.
func saysUpdate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "update this client") && !strings.Contains(err.Error(), "deployment set")
}

// calls are all calls that ask for votes, would change what a node has recorded, or say who has a lock.
func calls(client *redlatch.Client) map[string]func(context.Context) error {
	nothing := func(context.Context) error { return nil }
	shot := oneshot.New(client)
	return map[string]func(context.Context) error{
		"TryLock":        func(ctx context.Context) error { return errorOf(client.TryLock(ctx, "x")) },
		"Lock":           func(ctx context.Context) error { return errorOf(client.Lock(ctx, "x")) },
		"RLock":          func(ctx context.Context) error { return errorOf(client.RLock(ctx, "x")) },
		"Acquire":        func(ctx context.Context) error { return errorOf(client.Acquire(ctx, "x", 2)) },
		"LockAll":        func(ctx context.Context) error { return errorOf(client.LockAll(ctx, []string{"x", "y"})) },
		"TryDo":          func(ctx context.Context) error { return client.TryDo(ctx, "x", nothing) },
		"Do":             func(ctx context.Context) error { return client.Do(ctx, "x", nothing) },
		"Campaign":       func(ctx context.Context) error { return client.Campaign(ctx, "x", nothing) },
		"Admit":          func(ctx context.Context) error { return client.Admit(ctx, "n0") },
		"Reset":          func(ctx context.Context) error { return client.Reset(ctx, "n0") },
		"Take":           func(ctx context.Context) error { return errorOf(shot.Take(ctx, "x", "me", time.Second)) },
		"Extend":         func(ctx context.Context) error { return errorOf(shot.Extend(ctx, "x", "me", time.Second)) },
		"Inspect":        func(ctx context.Context) error { return errorOf(shot.Inspect(ctx, "x")) },
		"Observe":        func(ctx context.Context) error { return firstError(client.Observe(ctx, "x")) },
		"ObservePermits": func(ctx context.Context) error { return firstError(client.ObservePermits(ctx, "x")) },
		"Waiters":        func(ctx context.Context) error { return errorOf(client.Waiters(ctx, "x")) },
		"List": func(ctx context.Context) error {
			_, _, err := client.List(ctx, "*")
			return err
		},
		"Permits": func(ctx context.Context) error {
			_, _, err := client.Permits(ctx, "x")
			return err
		},
	}
}

// firstError returns the error of what a range yields first.
func firstError[T any](observed iter.Seq2[T, error]) error {
	for _, err := range observed {
		return err
	}
	return errors.New("nothing was observed")
}

// A client that meets a later version's record is told to be updated, whatever it calls, and writes nothing.
func TestLaterVersionRefusesEveryCall(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				servers := redistest.Nodes(t, n, redistest.Options{Binary: binary})
				conf := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), locktest.Patience)
				there := locktest.Open(t, conf)
				locktest.Vouch(t, there, conf.Nodes...)
				locktest.Unlock(t, locktest.TryLock(t, there, "x"))
				raise(t, conf.Deployment, servers...)
				before := contents(t, servers)
				for which, client := range map[string]*redlatch.Client{"there before": there, "new": locktest.Open(t, conf)} {
					all := calls(client)
					for _, name := range slices.Sorted(maps.Keys(all)) {
						if err := locktest.InTime(func() error { return all[name](locktest.Within(t, locktest.Patience)) }); !saysUpdate(err) {
							t.Errorf("%s, of a client that is %s: %v", name, which, err)
						}
						if after := contents(t, servers); !slices.Equal(after, before) {
							t.Fatalf("%s: there was\n%s\nand there is\n%s", name, without(before, after), without(after, before))
						}
					}
				}
				for _, node := range locktest.Examine(t, conf) {
					if node.Status != doctor.StatusUnfit || !saysUpdate(node.Reason) {
						t.Errorf("%s is %v because of %v", node.Node, node.Status, node.Reason)
					}
				}
			})
		}
	})
}

// Where the protocol is raised while locks are held and waited for, who waits is told, what is held can still be
// released, and what is not ends with its TTL.
func TestLaterVersionEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				servers := redistest.Nodes(t, n, redistest.Options{Binary: binary})
				conf := locktest.WithQuarantine(redistest.URLs(servers)...)
				client, waiter := locktest.Open(t, conf), locktest.Open(t, conf)
				locktest.Vouch(t, client, conf.Nodes...)
				released := locktest.TryLock(t, client, "released")
				held := locktest.TryLock(t, client, "held")
				waited := make(chan error, 1)
				go func() { waited <- errorOf(waiter.Lock(locktest.Within(t, 2*locktest.Patience), "held")) }()
				locktest.Await(t, "a waiter", func() bool {
					waiting, err := client.Waiters(t.Context(), "held")
					return err == nil && len(waiting) > 0
				})

				raise(t, conf.Deployment, servers...)
				locktest.Unlock(t, released)
				for _, s := range servers { // Unlock waits for a majority
					locktest.AwaitValue(t, s, "released", "")
				}
				locktest.Await(t, "the end of the lock that is held", func() bool { return held.Err() != nil })
				if err := held.Err(); !errors.Is(err, redlatch.ErrLost) || !saysUpdate(err) {
					t.Errorf("the lock that is held: %v", err)
				}
				if err := <-waited; !errors.Is(err, redlatch.ErrRefused) || !saysUpdate(err) {
					t.Errorf("who waits: %v", err)
				}
			})
		}
	})
}

// A node without a record is not admitted by the clients of a former version where another node has a later
// version's, as it is not where that has other settings.
func TestLaterVersionsRecordOnAnotherNode(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
		conf := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), locktest.Patience)
		client := locktest.Open(t, conf)
		locktest.Vouch(t, client, "n0", "n1", "n2")
		raise(t, conf.Deployment, servers...)
		locktest.Do(t, servers[0], "FLUSHALL")
		for _, lost := range []int{1, 2} { // of the others' records
			for _, client := range []*redlatch.Client{client, locktest.Open(t, conf)} {
				if err := locktest.InTime(func() error { return client.Admit(t.Context(), "n0") }); !saysUpdate(err) {
					t.Errorf("%d of 3 nodes have no record: admitted, error %v", lost, err)
				}
				if lock, err := locktest.TryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrRefused) || !saysUpdate(err) {
					t.Errorf("%d of 3 nodes have no record: lock %v, error %v", lost, lock, err)
				}
			}
			locktest.Do(t, servers[1], "FLUSHALL")
		}
		if keys := locktest.Do(t, servers[0], "KEYS", "*").([]any); len(keys) > 0 {
			t.Errorf("there is %q", keys)
		}
	})
}
