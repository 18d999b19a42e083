package redlatch_test

import (
	"errors"
	"fmt"
	"github.com/redlatch/redlatch/internal/storm"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

func clusterURL(servers []*redistest.Server) string {
	return fmt.Sprintf("redis://%s?addr=%s&addr=%s", servers[0].Addr(), servers[1].Addr(), servers[2].Addr())
}

func TestCluster(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		conf := config(clusterURL(servers))
		holder, other := open(t, conf), open(t, conf)
		at := make(map[int]bool)
		for _, name := range []string{storm.NameAt(0), storm.NameAt(1), storm.NameAt(2), "{tag}a", "a{tag}b", "{}x", "a}b{c", "}", "{{x}}"} {
			lock, err := awaitAnswer(t, holder, name)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			master := int(hashslot.Of(hashslot.Tag(name))) * 3 / hashslot.Slots
			at[master] = true
			if value(t, servers[master], name) == "" {
				t.Errorf("%q is not at the master of its slot", name)
			}
			if _, err := awaitAnswer(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
				t.Fatalf("%q: another: %v, want ErrHeld", name, err)
			}
			if err := lock.Extend(t.Context(), conf.TTL); err != nil {
				t.Errorf("%q: %v", name, err)
			}
			unlock(t, lock)
			next, err := awaitAnswer(t, other, name)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if next.Token() <= lock.Token() {
				t.Errorf("%q: token %d follows %d", name, next.Token(), lock.Token())
			}
			unlock(t, next)
			awaitValue(t, servers[master], name, "")
		}
		if len(at) != 3 {
			t.Errorf("locks at %d masters only", len(at))
		}

		// A waiter takes over from a holder.
		lock := tryLock(t, holder, storm.NameAt(1))
		next := make(chan *redlatch.Lock, 1)
		go func() {
			waited, err := other.Lock(within(t, patience), storm.NameAt(1))
			if err != nil {
				t.Error(err)
			}
			next <- waited
		}()
		unlock(t, lock)
		if waited := <-next; waited != nil {
			unlock(t, waited)
		}

		// A master that is gone takes the locks of its own slots along, and no others.
		servers[0].Kill()
		if _, err := other.TryLock(t.Context(), storm.NameAt(0)); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("got %v, want ErrNoQuorum", err)
		}
	})
}

// Each server is judged by itself, and each slot on it.
func TestClusterQuarantine(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--cluster-require-full-coverage", "no"}})
	conf := config(clusterURL(servers))
	conf.NoQuarantine = false
	conf.Deployment = storm.NameAt(0) // whose word is kept at a master that loses nothing
	client := open(t, conf)
	if _, err := awaitAnswer(t, client, storm.NameAt(0)); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("a fresh Cluster: %v, want ErrNotAdmitted", err)
	}
	admit := func() {
		t.Helper()
		await(t, "the Cluster is vouched for", func() bool { return client.Admit(t.Context(), "n0") == nil })
	}
	admit()
	for i := range servers {
		unlock(t, tryLock(t, client, storm.NameAt(i)))
	}
	if _, err := awaitAnswer(t, open(t, conf), "another slot"); err != nil {
		t.Errorf("a client that vouched for nobody: %v", err)
	}

	if err := servers[1].RestartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := awaitAnswer(t, client, storm.NameAt(1)); !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "started") {
		t.Errorf("a master that restarted: %v, want ErrNotAdmitted", err)
	}
	if lock, err := awaitAnswer(t, client, storm.NameAt(2)); err != nil {
		t.Errorf("another master: %v", err)
	} else {
		unlock(t, lock)
	}
	do(t, servers[2], "FLUSHALL")
	for _, name := range []string{storm.NameAt(2), "{" + storm.NameAt(2) + "}"} { // in a slot that was used
		// Who asks again, since the first answer was late, hears that it is being watched.
		_, err := awaitAnswer(t, client, name)
		told := err != nil && (strings.Contains(err.Error(), "deleted") || strings.Contains(err.Error(), "data was lost"))
		if !errors.Is(err, redlatch.ErrNotAdmitted) || !told {
			t.Errorf("%s at a master that was emptied: %v, want ErrNotAdmitted", name, err)
		}
	}
	admit()
	for i := range servers {
		if _, err := awaitAnswer(t, client, storm.NameAt(i)); err != nil {
			t.Errorf("vouched for again: %v", err)
		}
	}
}

// A slot moves to another master, key by key, while a lock in it is held, and
// while others try for it or nobody does.
func TestClusterSlotMovesWhileHeld(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for _, contended := range []bool{true, false} {
			t.Run(fmt.Sprintf("contended=%t", contended), func(t *testing.T) {
				t.Parallel()
				moveSlotWhileHeld(t, binary, contended)
			})
		}
	})
}

func moveSlotWhileHeld(t *testing.T, binary string, contended bool) {
	servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
	conf := config(clusterURL(servers))
	conf.NoQuarantine = false
	holder, other := open(t, conf), open(t, conf)
	await(t, "the Cluster is vouched for", func() bool { return holder.Admit(t.Context(), "n0") == nil })
	name := storm.NameAt(0)
	lock, err := awaitAnswer(t, holder, name)
	if err != nil {
		t.Fatal(err)
	}
	// Never two holders, and the holder stays one, wherever the slot is.
	check := func(stage string) {
		t.Helper()
		if contended {
			if second, err := other.TryLock(t.Context(), name); err == nil {
				t.Fatalf("%s: two holders: %v", stage, second)
			}
		}
		if err := lock.Err(); err != nil {
			t.Fatalf("%s: %v", stage, err)
		}
	}

	from, to := servers[0], servers[2]
	slot := strconv.Itoa(int(hashslot.Of(name)))
	fromID, toID := do(t, from, "CLUSTER", "MYID").(string), do(t, to, "CLUSTER", "MYID").(string)
	do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	check("before the first key")
	for _, key := range do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, "100").([]any) {
		do(t, from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), key.(string), "0", "5000")
		check("after " + key.(string))
	}
	for _, s := range []*redistest.Server{to, from, servers[1]} {
		do(t, s, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	check("moved")
	if !contended {
		do(t, to, "SCRIPT", "FLUSH") // as at a master that nobody has asked before
	}
	await(t, "the holder extends at the new master", func() bool {
		check("extending")
		return lock.Extend(t.Context(), conf.TTL) == nil
	})
	if _, err := awaitAnswer(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("another: %v, want ErrHeld", err)
	}
	unlock(t, lock)
	next, err := awaitAnswer(t, other, name)
	if err != nil {
		t.Fatal(err)
	}
	if value(t, to, name) == "" || next.Token() <= lock.Token() {
		t.Errorf("token %d follows %d", next.Token(), lock.Token())
	}
	unlock(t, next)
}

// A replica acknowledges a lock, takes its master's place in the Cluster, and has
// it still: with the quarantine it votes for nobody for a while, without it
// the holder goes on.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	for _, quarantine := range []bool{true, false} {
		t.Run(fmt.Sprintf("quarantine=%t", quarantine), func(t *testing.T) {
			t.Parallel()
			servers := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--cluster-node-timeout", "2000"}})
			replica := newClusterReplica(t, servers[0], servers)
			conf := config(clusterURL(servers))
			conf.NodeTimeout, conf.Replicas.Timeout = 400*time.Millisecond, 300*time.Millisecond
			conf.TTL = 30 * time.Second // more than a failover takes on a starved machine
			conf.NoQuarantine = !quarantine
			other := open(t, conf)
			conf.Replicas.Count = 1
			holder := open(t, conf)
			if quarantine {
				await(t, "the Cluster is vouched for", func() bool { return other.Admit(t.Context(), "n0") == nil })
			}
			if _, err := awaitAnswer(t, other, storm.NameAt(1)); err != nil {
				t.Fatal(err)
			}
			awaitNotReplicated(t, "0 of 1 replicas", func() error { return second(holder.TryLock(t.Context(), storm.NameAt(2))) })
			lock, err := holder.Lock(within(t, patience), storm.NameAt(0), redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}

			servers[0].Kill()
			await(t, "the replica is promoted", func() bool {
				return strings.Contains(do(t, replica, "INFO", "replication").(string), "role:master") &&
					strings.Contains(do(t, replica, "CLUSTER", "INFO").(string), "cluster_state:ok")
			})
			if value(t, replica, storm.NameAt(0)) == "" {
				t.Error("the promoted replica does not have the lock")
			}
			_, err = awaitAnswer(t, other, storm.NameAt(0))
			if !quarantine {
				if !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("another: %v, want ErrHeld", err)
				}
				return
			}
			if !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "promoted") {
				t.Errorf("another: %v, want ErrNotAdmitted", err)
			}
			if err := lock.Err(); err != nil {
				t.Errorf("the holder: %v", err)
			}
		})
	}
}

// newClusterReplica starts a replica of one master of a Cluster, and waits until
// it can take its place: all others know whose replica it is.
func newClusterReplica(t *testing.T, master *redistest.Server, all []*redistest.Server) *redistest.Server {
	t.Helper()
	replica := redistest.New(t, redistest.Options{Args: []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}})
	do(t, replica, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(master.Port()))
	id := do(t, master, "CLUSTER", "MYID").(string)
	await(t, "the replica knows its master", func() bool {
		_, err := replica.Do("CLUSTER", "REPLICATE", id)
		return err == nil
	})
	if err := replica.AwaitLink(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	await(t, "the replica finds the Cluster whole", func() bool {
		return strings.Contains(do(t, replica, "CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	own := do(t, replica, "CLUSTER", "MYID").(string)
	for _, s := range all {
		await(t, "the masters know the replica", func() bool {
			for line := range strings.Lines(do(t, s, "CLUSTER", "NODES").(string)) {
				if strings.HasPrefix(line, own) {
					return strings.Contains(line, "slave "+id)
				}
			}
			return false
		})
	}
	return replica
}

// Who takes a Cluster for a server, or a server for a Cluster, is told.
func TestClusterMistaken(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		for _, c := range []struct{ url, remedy string }{
			{servers[0].URL(), "?cluster at the end"},
			{sharedOf(t, binary, 1)[0].URL() + "?cluster", "without ?cluster"},
		} {
			if _, err := awaitRefusal(t, open(t, config(c.url))); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), c.remedy) {
				t.Errorf("%s: %v, want a refusal with %q", c.url, err, c.remedy)
			}
		}
		lock, err := awaitAnswer(t, open(t, config(servers[2].URL()+"?cluster")), storm.NameAt(0))
		if err != nil {
			t.Fatalf("by one address of it: %v", err)
		}
		unlock(t, lock)
		reports, err := doctor.Examine(t.Context(), config(clusterURL(servers)))
		if err != nil || len(reports) != 1 || reports[0].Status != doctor.StatusUnclear || reports[0].Err == nil {
			t.Errorf("examined: %+v, %v", reports, err)
		}
		if err := open(t, config(clusterURL(servers))).Reset(t.Context(), "n0"); err == nil || !strings.Contains(err.Error(), "another Deployment") {
			t.Errorf("reset: %v, want an error that says what to do", err)
		}
	})
}

// awaitRefusal tries until the node was reached.
func awaitRefusal(t *testing.T, client *redlatch.Client) (*redlatch.Lock, error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		lock, err := client.TryLock(t.Context(), "x")
		if !errors.Is(err, redlatch.ErrNoQuorum) || time.Now().After(deadline) {
			return lock, err
		}
	}
}
