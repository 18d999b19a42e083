package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// uptime is what the server counts, in whole seconds, rounded up or down.
func uptime(t *testing.T, s *redistest.Server) time.Duration {
	t.Helper()
	info, err := s.Info("server")
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.Atoi(info["uptime_in_seconds"])
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(seconds) * time.Second
}

// isDisagreement reports whether err says that the client differs from the deployment, with
// both values and the command that changes it.
func isDisagreement(err error, values ...string) bool {
	if !errors.Is(err, redlatch.ErrInvalid) {
		return false
	}
	for _, part := range append(values, "redlatch deployment set") {
		if !strings.Contains(err.Error(), part) {
			return false
		}
	}
	return true
}

// looks expects that a client may look at a name that nobody has.
func looks(t *testing.T, client *redlatch.Client, name string) {
	t.Helper()
	var id string
	err := locktest.InTime(func() (err error) {
		id, _, err = oneshot.New(client).Query(t.Context(), name)
		return err
	})
	if err != nil || id != "" {
		t.Errorf("query: %q, %v", id, err)
	}
	if err := locktest.InTime(func() error { return errorOf(oneshot.New(client).Inspect(t.Context(), name)) }); err != nil {
		t.Errorf("inspect: %v", err)
	}
}

// A node restarts empty, and clients come that agree on a shorter quarantine or on none. A
// lock is held through the node's votes of before, and through one of the two others: who
// wants it needs the forgetful node's vote.
func TestOtherClientsAdmitForNobody(t *testing.T) {
	t.Parallel()
	const maxTTL = 3 * time.Second
	quarantine := maxTTL + 4*time.Second
	others := map[string]func(*redlatch.Config){
		"a shorter MaxTTL": func(c *redlatch.Config) { c.TTL, c.MaxTTL = time.Second, time.Second },
		"no quarantine":    func(c *redlatch.Config) { c.NoQuarantine = true },
	}
	visits := map[string]func(*testing.T, redlatch.Config){
		"looking": func(t *testing.T, c redlatch.Config) {
			client := locktest.Open(t, c)
			defer client.Close()
			looks(t, client, "y")
			if node := locktest.Examine(t, c)[0]; node.Status != doctor.StatusUnfit || !isDisagreement(node.Reason) {
				t.Errorf("examined, the restarted node is %v because of %v", node.Status, node.Reason)
			}
		},
		"locking": func(t *testing.T, c redlatch.Config) {
			client := locktest.Open(t, c)
			defer client.Close()
			if _, err := locktest.TryInTime(t, client, "y"); !isDisagreement(err) {
				t.Errorf("lock: %v", err)
			}
			take := func() error { return errorOf(oneshot.New(client).Take(t.Context(), "y", "me", time.Second)) }
			if err := locktest.InTime(take); !isDisagreement(err) {
				t.Errorf("take: %v", err)
			}
			if err := client.Admit(t.Context(), "n0"); !isDisagreement(err) {
				t.Errorf("admit: %v", err)
			}
		},
	}
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for differs, change := range others {
			for visit, come := range visits {
				t.Run(differs+", "+visit, func(t *testing.T) {
					t.Parallel()
					servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
					proxies := redistest.Proxies(t, servers[1:])
					c := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), maxTTL)
					other := c
					change(&other)
					locktest.Vouch(t, locktest.Open(t, c), "n0", "n1", "n2")
					one := locktest.Open(t, locktest.Through(c, servers[0].URL(), servers[1].URL(), proxies[1].URL()))
					two := locktest.Open(t, locktest.Through(c, servers[0].URL(), proxies[0].URL(), servers[2].URL()))
					for _, p := range proxies { // the first holder has n0 and n1, the next has n0 and n2
						if err := p.Refuse(true); err != nil {
							t.Fatal(err)
						}
						p.Cut()
					}
					held := locktest.TryLock(t, one, "x", redlatch.WithoutRenewal())
					locktest.KillAndRestart(t, servers[0])

					type outcome struct{ next, held error }
					granted := make(chan outcome, 1)
					ctx := locktest.Within(t, 3*locktest.Patience)
					go func() {
						_, err := two.Lock(ctx, "x")
						granted <- outcome{err, held.Err()}
					}()
					pace := time.NewTicker(20 * time.Millisecond)
					defer pace.Stop()
					for visitors := 0; ; visitors++ {
						come(t, other)
						if keys := locktest.Do(t, servers[0], "KEYS", "*").([]any); len(keys) > 0 && uptime(t, servers[0]) < quarantine {
							t.Fatalf("after %v, and %d visitors, the restarted node has the keys %q", uptime(t, servers[0]), visitors, keys)
						}
						select {
						case o := <-granted:
							up := uptime(t, servers[0])
							if o.next != nil || o.held == nil || up < quarantine {
								t.Errorf("the next holder, after %v: %v; the first: %v; want one after %v when the first is lost", up, o.next, o.held, quarantine)
							}
							t.Logf("granted after %v and %d visitors", up, visitors)
							return
						case <-pace.C:
						}
					}
				})
			}
		}
	})
}

// contents is what all keys have, and how many changes the servers have counted.
func contents(t *testing.T, servers []*redistest.Server) (lines []string) {
	t.Helper()
	for i, s := range servers {
		info, err := s.Info("persistence")
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("n%d: %s changes", i, info["rdb_changes_since_last_save"]))
		for _, key := range locktest.Do(t, s, "KEYS", "*").([]any) {
			lines = append(lines, fmt.Sprintf("n%d: %s %q", i, key, locktest.Do(t, s, "DUMP", key.(string))))
		}
	}
	slices.Sort(lines)
	return lines
}

// without returns the lines that are not among others.
func without(lines, others []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) }), "\n")
}

// newcomer is a client that differs, and what its errors are to name.
type newcomer struct {
	differs string
	change  func(*redlatch.Config)
	values  []string
}

// nameByAddress leaves the names of the nodes out, so that their addresses are their names.
func nameByAddress(c *redlatch.Config) {
	urls := make([]string, len(c.Nodes))
	for i, url := range c.Nodes {
		urls[i], _, _ = strings.Cut(url, "#")
	}
	c.Nodes = urls
}

func newcomers() []newcomer {
	return []newcomer{
		{"a larger MaxTTL", func(c *redlatch.Config) { *c = locktest.WithMaxTTL(*c, 50*time.Second) }, []string{"MaxTTL 40s", "MaxTTL 50s", "--max-ttl 50s"}},
		{"a smaller MaxTTL", func(c *redlatch.Config) { *c = locktest.WithMaxTTL(*c, 1500*time.Millisecond) }, []string{"MaxTTL 40s", "MaxTTL 1.5s"}},
		{"no quarantine", func(c *redlatch.Config) { c.NoQuarantine = true }, []string{"MaxTTL 40s", "NoQuarantine", "--no-quarantine"}},
		{"Durable", func(c *redlatch.Config) { c.Durable = true }, []string{"MaxTTL 40s", "Durable", "--durable"}},
		{"fewer nodes", func(c *redlatch.Config) { c.Nodes = c.Nodes[:2] }, []string{"[n0 n1 n2]", "[n0 n1]"}},
		{"other addresses", nameByAddress, []string{"[n0 n1 n2]", "[127.0.0.1:", "such as #n0"}},
	}
}

// askForAll has the newcomer ask for everything that it must not get.
func (n newcomer) askForAll(t *testing.T, c redlatch.Config, held *redlatch.Lock, id string) {
	t.Helper()
	n.change(&c)
	client := locktest.Open(t, c)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), locktest.Patience)
	defer cancel()
	for what, ask := range map[string]func() error{
		"TryLock":      func() error { return errorOf(client.TryLock(ctx, "free")) },
		"TryLock held": func() error { return errorOf(client.TryLock(ctx, held.Name())) },
		"Lock":         func() error { return errorOf(client.Lock(ctx, "free")) },
		"Lock held":    func() error { return errorOf(client.Lock(ctx, held.Name())) },
		"no queue":     func() error { return errorOf(client.Lock(ctx, held.Name(), redlatch.WithoutQueue())) },
		"Take":         func() error { return errorOf(oneshot.New(client).Take(ctx, "free", "me", time.Second)) },
		"ExtendTake":   func() error { return errorOf(oneshot.New(client).Extend(ctx, "taken", id, c.MaxTTL)) },
		"Admit":        func() error { return client.Admit(ctx, c.Nodes[0]) },
	} {
		err := ask()
		for locktest.Late(err) && ctx.Err() == nil {
			err = ask()
		}
		if !isDisagreement(err, n.values...) {
			t.Errorf("%s: %s: got %v, want ErrInvalid with %q", n.differs, what, err, n.values)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// A client that differs is refused all that would change something, and can look.
func TestANewcomerThatDiffersChangesNothing(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
		c := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), 40*time.Second)
		c.NodeTimeout = time.Second // the last of three answers is waited for
		resident := locktest.Open(t, c)
		locktest.Vouch(t, resident, "n0", "n1", "n2")
		for _, n := range newcomers() {
			held, err := resident.Lock(locktest.Within(t, locktest.Patience), "held", redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			// It runs out after the first, so that nothing does before that.
			take := func() error { return errorOf(oneshot.New(resident).Take(t.Context(), "taken", "me", c.MaxTTL)) }
			if err := locktest.InTime(take); err != nil {
				t.Fatal(err)
			}
			locktest.AwaitOn(t, held, servers...)
			awaitQuiet(t, servers)
			before := contents(t, servers)
			n.askForAll(t, c, held, "me")
			other := c
			n.change(&other)
			client := locktest.Open(t, other)
			var id string
			var left time.Duration
			err = locktest.InTime(func() (err error) {
				id, left, err = oneshot.New(client).Query(t.Context(), "held")
				return err
			})
			if err != nil || id != hook.LeaseOf(held).HolderID() && id != "" || left > c.MaxTTL {
				t.Errorf("%s: query: %q for %v, %v", n.differs, id, left, err)
			}
			if holding, err := oneshot.New(client).Inspect(t.Context(), "held"); err != nil || len(holding.Nodes) != len(other.Nodes) {
				t.Errorf("%s: inspect: %+v, %v", n.differs, holding, err)
			}
			for _, node := range locktest.Examine(t, other) {
				if node.Status != doctor.StatusUnfit || !isDisagreement(node.Reason, n.values...) {
					t.Errorf("%s: %s is %v because of %v", n.differs, node.Node, node.Status, node.Reason)
				}
			}
			for _, node := range locktest.Examine(t, c) {
				if node.Status != doctor.StatusAdmitted {
					t.Errorf("%s: for the others, %s is %v because of %v", n.differs, node.Node, node.Status, node.Reason)
				}
			}
			if after := contents(t, servers); !slices.Equal(after, before) && held.Err() == nil {
				t.Errorf("%s: there was\n%s\nand there is\n%s", n.differs, without(before, after), without(after, before))
			}
			held.Unlock(t.Context())
			release := func() error { return errorOf(oneshot.New(resident).Release(t.Context(), "taken", "me")) }
			if err := locktest.InTime(release); err != nil {
				t.Fatal(err)
			}
			for _, s := range servers { // a quorum is released when Unlock returns
				locktest.AwaitValue(t, s, "held", "")
				locktest.AwaitValue(t, s, "taken", "")
			}
		}
	})
}

// awaitQuiet waits until nothing more is written of what was asked before: the last of three
// answers may come when the lock is held already.
func awaitQuiet(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		for _, name := range []string{"held", "taken"} {
			locktest.Await(t, name+" is on "+s.Addr(), func() bool { return locktest.Value(t, s, name) != "" })
		}
	}
}

// While newcomers come, those who were there lock, renew and extend as before.
func TestANewcomerThatDiffersStopsNobody(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
		c := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), 40*time.Second)
		c.TTL = 15 * time.Second // which is renewed soon, and lasts on a busy machine
		resident := locktest.Open(t, c)
		locktest.Vouch(t, resident, "n0", "n1", "n2")
		held := locktest.TryLock(t, resident, "held")
		take := func() error { return errorOf(oneshot.New(resident).Take(t.Context(), "taken", "me", c.MaxTTL)) }
		if err := locktest.InTime(take); err != nil {
			t.Fatal(err)
		}
		until := held.Until()

		stop := make(chan struct{})
		var locks atomic.Int64
		var busy sync.WaitGroup
		for i := range 3 {
			client := locktest.Open(t, c)
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					lock, err := locktest.TryInTime(t, client, fmt.Sprint("own", i))
					if err != nil {
						t.Errorf("one who was there: %v", err)
						return
					}
					if err := lock.Extend(t.Context(), c.TTL); err != nil && !locktest.Late(err) {
						t.Errorf("one who was there: %v", err)
					}
					if err := lock.Unlock(t.Context()); err != nil && !locktest.Late(err) {
						t.Errorf("one who was there: %v", err)
					}
					locks.Add(1)
				}
			})
		}
		for rounds, begun := 0, locks.Load(); rounds == 0 || !held.Until().After(until) || locks.Load() < begun+100; rounds++ {
			for _, n := range newcomers() {
				n.askForAll(t, c, held, "me")
			}
			// A deployment of its own on the same servers is nobody else's.
			own := locktest.WithMaxTTL(c, 9*time.Second)
			own.Deployment = fmt.Sprint(c.Deployment, "-other-", rounds)
			neighbour := locktest.Open(t, own)
			locktest.Vouch(t, neighbour, "n0", "n1", "n2")
			lock, err := neighbour.Lock(locktest.Within(t, locktest.Patience), fmt.Sprint("neighbour", rounds))
			if err != nil {
				t.Errorf("another deployment: %v", err)
			} else {
				locktest.Unlock(t, lock)
			}
			if t.Failed() || held.Err() != nil {
				break
			}
		}
		close(stop)
		busy.Wait()
		if err := held.Err(); err != nil {
			t.Errorf("the lock of before: %v", err)
		}
		locktest.Unlock(t, held)
		t.Logf("%d locks meanwhile", locks.Load())
	})
}
