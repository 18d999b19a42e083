package faults

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// rights are what doc.go says that a user needs: always, and beside that for what.
func rights(t *testing.T) (always []string, beside map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../../doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "// # Rights\n")
	section, _, _ = strings.Cut(section, "// # ")
	for _, line := range regexp.MustCompile(`(?m)^//\t(.*)$`).FindAllStringSubmatch(section, -1) {
		always = append(always, strings.Fields(line[1])...)
	}
	_, prose, _ := strings.Cut(strings.ReplaceAll(section, "\n// ", " "), "Beside these, ")
	beside = make(map[string][]string)
	for _, what := range []string{"Config.Replicas", "a URL with a database number", "Waiters, Readers and Permits", "List needs", "CommandsWatch", "a Cluster", "doctor tells"} {
		_, after, found := strings.Cut(prose, what)
		after, _, _ = strings.Cut(strings.ReplaceAll(after, ". ", "; "), "; ")
		beside[what] = regexp.MustCompile(`\+[a-z|]+`).FindAllString(after, -1)
		if !found || len(beside[what]) == 0 {
			t.Errorf("doc.go does not say what %s needs", what)
		}
	}
	return always, beside
}

// The rights that doc.go lists are enough for all that a client does: the server has denied
// nothing, not even what would be done without.
func TestRights(t *testing.T) {
	t.Parallel()
	always, beside := rights(t)
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		user := func(name string, more ...string) string {
			return name + " on >p resetkeys resetchannels -@all " + strings.Join(slices.Concat(always, more), " ")
		}
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{
			user("app"), user("lister", beside["List needs"]...), user("looker", beside["Waiters, Readers and Permits"]...), user("second", beside["a URL with a database number"]...),
			user("watcher", beside["CommandsWatch"]...), user("examiner", beside["doctor tells"]...), user("durable", beside["Config.Replicas"][0]), // the other is for Fsync, and Redis 7.0 does not know it
		}})
		as := func(name string) redlatch.Config { return longer(locktest.WithQuarantine(server.URLAs(name, "p"))) }

		t.Run("locks", func(t *testing.T) {
			c := as("app")
			lockByTurns(t, c)
			if err := locktest.Open(t, c).Reset(t.Context(), c.Nodes[0]); err != nil {
				t.Error(err)
			}
		})
		t.Run("oneshot", func(t *testing.T) { takeAndRelease(t, oneshot.New(vouched(t, as("app")))) })
		t.Run("transactions", func(t *testing.T) {
			shots, err := oneshot.NewWith(locktest.Open(t, locktest.Config(server.URLAs("watcher", "p"))), oneshot.Config{Commands: oneshot.CommandsWatch})
			if err != nil {
				t.Fatal(err)
			}
			takeAndRelease(t, shots)
		})
		t.Run("List", func(t *testing.T) {
			c := as("lister")
			lock := locktest.TryLock(t, vouched(t, c), "job/list")
			if listed, _, err := redlatch.List(t.Context(), c, "job/list"); err != nil || len(listed) != 1 {
				t.Errorf("listed %+v, %v", listed, err)
			}
			c = as("looker")
			_, waiters := redlatch.Waiters(t.Context(), c, "job/list")
			_, readers := redlatch.Readers(t.Context(), c, "job/list")
			_, _, permits := redlatch.Permits(t.Context(), c, "job/list")
			if err := errors.Join(waiters, readers, permits); err != nil {
				t.Error(err)
			}
			locktest.Unlock(t, lock)
		})
		t.Run("second database", func(t *testing.T) {
			lockByTurns(t, longer(locktest.WithQuarantine(server.URLAs("second", "p")+"/1")))
		})
		t.Run("Replicas", func(t *testing.T) {
			c := as("durable")
			c.Replicas.Count, c.NodeTimeout = 1, 500*time.Millisecond
			client := vouched(t, c)
			if _, err := client.TryLock(t.Context(), "job/replicas"); err == nil || strings.Contains(err.Error(), "wait") {
				t.Errorf("without a replica: %v", err)
			}
		})
		t.Run("doctor", func(t *testing.T) {
			report := locktest.Examine(t, as("examiner"), "job/1")[0]
			if report.Err != nil || len(report.Missing) > 0 || report.User != "examiner" || report.Persistence == "unknown" {
				t.Errorf("%+v", report)
			}
		})
		if denied := locktest.Do(t, server, "ACL", "LOG"); fmt.Sprint(denied) != "[]" {
			t.Errorf("denied: %v", denied)
		}
	})
}

// In a Cluster, too.
func TestRightsInCluster(t *testing.T) {
	t.Parallel()
	always, beside := rights(t)
	user := "app on >p resetkeys resetchannels -@all " + strings.Join(slices.Concat(always, beside["a Cluster"]), " ")
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary, Users: []string{user}})
		lockByTurns(t, longer(locktest.WithQuarantine(servers[0].URLAs("app", "p")+"?cluster")))
		for _, s := range servers {
			if denied := locktest.Do(t, s, "ACL", "LOG"); fmt.Sprint(denied) != "[]" {
				t.Errorf("denied: %v", denied)
			}
		}
	})
}

// A user who may not use the commands on sorted sets, or one of them, waits for locks all the same. If it
// is refused as a reader, nothing stays in the way of others.
func TestWithoutSortedSets(t *testing.T) {
	t.Parallel()
	always, _ := rights(t)
	sets := []string{"+zadd", "+zrange", "+zrank", "+zrem", "+zscore"}
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		full := longer(locktest.WithQuarantine(server.URL()))
		other := vouched(t, full)
		for name, without := range map[string][]string{"all": sets, "zadd": sets[:1], "zrange": sets[1:2], "zrank": sets[2:3], "zrem": sets[3:4], "zscore": sets[4:]} {
			words := []string{"ACL", "SETUSER", name, "on", ">p", "resetkeys", "resetchannels", "-@all"}
			for _, right := range always {
				if !slices.Contains(without, right) {
					words = append(words, right)
				}
			}
			locktest.Do(t, server, words...)
			c := full
			c.Nodes = []string{server.URLAs(name, "p") + "#n0"}
			client := locktest.Open(t, c)
			reader, err := client.RLock(locktest.Within(t, locktest.Patience), "job/read/"+name)
			if err == nil {
				locktest.Unlock(t, reader)
			} else if !errors.Is(err, redlatch.ErrRefused) {
				t.Errorf("%s: a reader gets %v", name, err)
			}
			for _, key := range locktest.Do(t, server, "KEYS", "*job/read/"+name).([]any) {
				if text := fmt.Sprint(key); !strings.Contains(text, ":token:") {
					t.Errorf("%s: after %v there is %s", name, err, text)
				}
			}
			lock := locktest.TryLock(t, other, "job/"+name)
			var outs []<-chan locktest.Outcome
			for range 2 {
				report, waits := locktest.WhenWaiting(nil)
				out := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.Open(t, c), "job/"+name, report)
				select {
				case <-waits:
					outs = append(outs, out)
				case o := <-out:
					t.Fatalf("%s: a waiter gets %v", name, o.Err)
				}
			}
			locktest.Unlock(t, lock)
			for range outs {
				var o locktest.Outcome
				select {
				case o = <-outs[0]:
				case o = <-outs[1]:
				}
				if o.Err != nil {
					t.Errorf("%s: a waiter gets %v", name, o.Err)
				} else {
					locktest.Unlock(t, o.Lock)
				}
			}
		}
	})
}

// longer is c with locks that do not run out on a busy machine. Nobody waits for the quarantine.
func longer(c redlatch.Config) redlatch.Config { return locktest.WithMaxTTL(c, locktest.TTL) }

// vouched opens a client and has it vouch for its nodes.
func vouched(t *testing.T, c redlatch.Config) *redlatch.Client {
	t.Helper()
	client := locktest.Open(t, c)
	locktest.Vouch(t, client, c.Nodes...)
	return client
}

// lockByTurns has two clients do what there is to do with a lock.
func lockByTurns(t *testing.T, c redlatch.Config) {
	one, other := vouched(t, c), locktest.Open(t, c)
	lock := locktest.TryLock(t, one, "job/1")
	report, waits := locktest.WhenWaiting(nil)
	out := locktest.LockIn(locktest.Within(t, locktest.Patience), other, "job/1", report)
	<-waits
	locktest.Extend(t, lock, locktest.TTL)
	locktest.Unlock(t, lock)
	o := <-out
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	locktest.Unlock(t, o.Lock)
	var many []*redlatch.Lock // at once: their steps may go together
	for _, out := range []<-chan locktest.Outcome{locktest.LockIn(t.Context(), one, "job/2"), locktest.LockIn(t.Context(), one, "job/3"), locktest.LockIn(t.Context(), one, "job/4")} {
		if o := <-out; o.Err != nil {
			t.Error(o.Err)
		} else {
			many = append(many, o.Lock)
		}
	}
	for _, lock := range many {
		locktest.Unlock(t, lock)
	}
}

func takeAndRelease(t *testing.T, shots *oneshot.Client) {
	const tries = 20 // on a busy machine the server may be late, but not each time
	err := takeAndReleaseOnce(t, shots, "job/shot")
	for try := 1; err != nil && try < tries; try++ {
		err = takeAndReleaseOnce(t, shots, fmt.Sprint("job/shot", try))
	}
	if err != nil {
		t.Error(err)
	}
}

func takeAndReleaseOnce(t *testing.T, shots *oneshot.Client, name string) error {
	const id = "an id"
	if taken, err := shots.Take(t.Context(), name, id, locktest.TTL); err != nil || !taken {
		return fmt.Errorf("taken: %v, %w", taken, err)
	}
	if extended, err := shots.Extend(t.Context(), name, id, locktest.TTL); err != nil || !extended {
		return fmt.Errorf("extended: %v, %w", extended, err)
	}
	if holder, _, err := shots.Query(t.Context(), name); err != nil || holder != id {
		return fmt.Errorf("held by %q, %w", holder, err)
	}
	if _, err := shots.Inspect(t.Context(), name); err != nil {
		return err
	}
	if released, err := shots.Release(t.Context(), name, id); err != nil || !released {
		return fmt.Errorf("released: %v, %w", released, err)
	}
	return nil
}
