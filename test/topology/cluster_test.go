package topology

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

func clusterURL(servers []*redistest.Server) string {
	return fmt.Sprintf("redis://%s?addr=%s&addr=%s", servers[0].Addr(), servers[1].Addr(), servers[2].Addr())
}

func TestCluster(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		conf := locktest.Config(clusterURL(servers))
		holder, other := locktest.Open(t, conf), locktest.Open(t, conf)
		at := make(map[int]bool)
		for _, name := range []string{storm.NameAt(0), storm.NameAt(1), storm.NameAt(2), "{tag}a", "a{tag}b", "{}x", "a}b{c", "}", "{{x}}"} {
			lock, err := locktest.AwaitAnswer(t, holder, name)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			master := int(hashslot.Of(hashslot.Tag(name))) * 3 / hashslot.Slots
			at[master] = true
			if locktest.Value(t, servers[master], name) == "" {
				t.Errorf("%q is not at the master of its slot", name)
			}
			if _, err := locktest.AwaitAnswer(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
				t.Fatalf("%q: another: %v, want ErrHeld", name, err)
			}
			locktest.Extend(t, lock, conf.TTL)
			locktest.Unlock(t, lock)
			next, err := locktest.AwaitAnswer(t, other, name)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if next.Token() <= lock.Token() {
				t.Errorf("%q: token %d follows %d", name, next.Token(), lock.Token())
			}
			locktest.Unlock(t, next)
			locktest.AwaitValue(t, servers[master], name, "")
		}
		if len(at) != 3 {
			t.Errorf("locks at %d masters only", len(at))
		}

		// A waiter takes over from a holder.
		lock := locktest.TryLock(t, holder, storm.NameAt(1))
		next := make(chan *redlatch.Lock, 1)
		go func() {
			waited, err := other.Lock(locktest.Within(t, locktest.Patience), storm.NameAt(1))
			if err != nil {
				t.Error(err)
			}
			next <- waited
		}()
		locktest.Unlock(t, lock)
		if waited := <-next; waited != nil {
			locktest.Unlock(t, waited)
		}

		// A master that is gone takes the locks of its own slots along, and no others.
		servers[0].Kill()
		if _, err := other.TryLock(t.Context(), storm.NameAt(0)); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("got %v, want ErrNoQuorum", err)
		}
	})
}

// Several names of one slot are one lock, also beside their waiters, and readers have one together; names
// of several slots are refused before anything is sent.
func TestClusterSeveralNames(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3)
	conf := locktest.Config(clusterURL(servers))
	holder, other := locktest.Open(t, conf), locktest.Open(t, conf)
	first := storm.NameAt(1)
	names := []string{"{" + first + "}/a", "{" + first + "}/b", first}
	if _, err := locktest.AwaitAnswer(t, holder, names[0]+"/before"); err != nil { // its master is known from then on
		t.Fatal(err)
	}
	lock := locktest.TryLock(t, holder, names[0], redlatch.WithAlso(names...))
	for _, name := range names {
		if locktest.Value(t, servers[1], name) == "" {
			t.Errorf("%q is not at the master of its slot", name)
		}
		if _, err := locktest.TryInTime(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("%q: %v", name, err)
		}
	}
	locktest.Extend(t, lock, conf.TTL)
	next := locktest.LockIn(locktest.Within(t, locktest.Patience), other, names[2], redlatch.WithAlso(names[1]))
	locktest.Unlock(t, lock)
	if o := <-next; o.Err != nil || o.Lock.Token() <= lock.Token() {
		t.Errorf("who waits: %+v", o)
	} else {
		locktest.Unlock(t, o.Lock)
	}
	readers := []*redlatch.Lock{locktest.TryLock(t, holder, first, redlatch.WithShared()), locktest.TryLock(t, other, first, redlatch.WithShared())}
	if _, err := locktest.TryInTime(t, other, first); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("beside readers: %v", err)
	}
	writer := locktest.LockIn(locktest.Within(t, locktest.Patience), other, first)
	for _, reader := range readers {
		locktest.Extend(t, reader, conf.TTL)
		locktest.Unlock(t, reader)
	}
	if o := <-writer; o.Err != nil || o.Lock.Token() <= readers[1].Token() {
		t.Errorf("the writer: %+v", o)
	} else {
		locktest.Unlock(t, o.Lock)
	}
	before := locktest.ScriptCalls(t, servers)
	_, err := other.LockAll(t.Context(), []string{storm.NameAt(0), storm.NameAt(2)})
	if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "hash tag") {
		t.Errorf("names of two slots: %v", err)
	}
	if after := locktest.ScriptCalls(t, servers); !slices.Equal(before, after) {
		t.Errorf("%v scripts were run, %v before", after, before)
	}
}

// Each server is judged by itself, and each slot on it.
func TestClusterQuarantine(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--cluster-require-full-coverage", "no"}})
	conf := locktest.Config(clusterURL(servers))
	conf.NoQuarantine = false
	conf.Deployment = storm.NameAt(0) // whose word is kept at a master that loses nothing
	client := locktest.Open(t, conf)
	if _, err := locktest.AwaitAnswer(t, client, storm.NameAt(0)); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("a fresh Cluster: %v, want ErrNotAdmitted", err)
	}
	admit := func() {
		t.Helper()
		locktest.Await(t, "the Cluster is vouched for", func() bool { return client.Admit(t.Context(), "n0") == nil })
	}
	admit()
	for i := range servers {
		locktest.Unlock(t, locktest.TryLock(t, client, storm.NameAt(i)))
	}
	if _, err := locktest.AwaitAnswer(t, locktest.Open(t, conf), "another slot"); err != nil {
		t.Errorf("a client that vouched for nobody: %v", err)
	}

	if err := servers[1].RestartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := locktest.AwaitAnswer(t, client, storm.NameAt(1)); !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "started") {
		t.Errorf("a master that restarted: %v, want ErrNotAdmitted", err)
	}
	if lock, err := locktest.AwaitAnswer(t, client, storm.NameAt(2)); err != nil {
		t.Errorf("another master: %v", err)
	} else {
		locktest.Unlock(t, lock)
	}
	locktest.Do(t, servers[2], "FLUSHALL")
	for _, name := range []string{storm.NameAt(2), "{" + storm.NameAt(2) + "}"} { // in a slot that was used
		// Who asks again, since the first answer was late, hears that it is being watched.
		_, err := locktest.AwaitAnswer(t, client, name)
		told := err != nil && (strings.Contains(err.Error(), "deleted") || strings.Contains(err.Error(), "data was lost"))
		if !errors.Is(err, redlatch.ErrNotAdmitted) || !told {
			t.Errorf("%s at a master that was emptied: %v, want ErrNotAdmitted", name, err)
		}
	}
	admit()
	for i := range servers {
		if _, err := locktest.AwaitAnswer(t, client, storm.NameAt(i)); err != nil {
			t.Errorf("vouched for again: %v", err)
		}
	}
}

// A slot moves to another master, key by key, while a lock in it is held, and
// while others try for it or nobody does.
func TestClusterSlotMovesWhileHeld(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
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
	conf := locktest.Config(clusterURL(servers))
	conf.NoQuarantine = false
	holder, other := locktest.Open(t, conf), locktest.Open(t, conf)
	locktest.Await(t, "the Cluster is vouched for", func() bool { return holder.Admit(t.Context(), "n0") == nil })
	name := storm.NameAt(0)
	lock, err := locktest.AwaitAnswer(t, holder, name)
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
	fromID, toID := locktest.Do(t, from, "CLUSTER", "MYID").(string), locktest.Do(t, to, "CLUSTER", "MYID").(string)
	locktest.Do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	locktest.Do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	check("before the first key")
	for _, key := range locktest.Do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, "100").([]any) {
		locktest.Do(t, from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), key.(string), "0", "5000")
		check("after " + key.(string))
	}
	for _, s := range []*redistest.Server{to, from, servers[1]} {
		locktest.Do(t, s, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	check("moved")
	if !contended {
		locktest.Do(t, to, "SCRIPT", "FLUSH") // as at a master that nobody has asked before
	}
	locktest.Await(t, "the holder extends at the new master", func() bool {
		check("extending")
		return lock.Extend(t.Context(), conf.TTL) == nil
	})
	if _, err := locktest.AwaitAnswer(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("another: %v, want ErrHeld", err)
	}
	locktest.Unlock(t, lock)
	next, err := locktest.AwaitAnswer(t, other, name)
	if err != nil {
		t.Fatal(err)
	}
	if locktest.Value(t, to, name) == "" || next.Token() <= lock.Token() {
		t.Errorf("token %d follows %d", next.Token(), lock.Token())
	}
	locktest.Unlock(t, next)
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
			conf := locktest.Config(clusterURL(servers))
			conf.NodeTimeout, conf.Replicas.Timeout = 400*time.Millisecond, 300*time.Millisecond
			conf.TTL = 30 * time.Second // more than a failover takes on a starved machine
			conf.NoQuarantine = !quarantine
			other := locktest.Open(t, conf)
			conf.Replicas.Count = 1
			holder := locktest.Open(t, conf)
			if quarantine {
				locktest.Await(t, "the Cluster is vouched for", func() bool { return other.Admit(t.Context(), "n0") == nil })
			}
			if _, err := locktest.AwaitAnswer(t, other, storm.NameAt(1)); err != nil {
				t.Fatal(err)
			}
			awaitNotReplicated(t, "0 of 1 replicas", func() error { return locktest.ErrorOf(holder.TryLock(t.Context(), storm.NameAt(2))) })
			lock, err := holder.Lock(locktest.Within(t, locktest.Patience), storm.NameAt(0), redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}

			servers[0].Kill()
			locktest.Await(t, "the replica is promoted", func() bool {
				return strings.Contains(locktest.Do(t, replica, "INFO", "replication").(string), "role:master") &&
					strings.Contains(locktest.Do(t, replica, "CLUSTER", "INFO").(string), "cluster_state:ok")
			})
			if locktest.Value(t, replica, storm.NameAt(0)) == "" {
				t.Error("the promoted replica does not have the lock")
			}
			_, err = locktest.AwaitAnswer(t, other, storm.NameAt(0))
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
	locktest.Do(t, replica, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(master.Port()))
	id := locktest.Do(t, master, "CLUSTER", "MYID").(string)
	locktest.Await(t, "the replica knows its master", func() bool {
		_, err := replica.Do("CLUSTER", "REPLICATE", id)
		return err == nil
	})
	if err := replica.AwaitLink(locktest.Within(t, locktest.Patience)); err != nil {
		t.Fatal(err)
	}
	locktest.Await(t, "the replica finds the Cluster whole", func() bool {
		return strings.Contains(locktest.Do(t, replica, "CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	own := locktest.Do(t, replica, "CLUSTER", "MYID").(string)
	for _, s := range all {
		locktest.Await(t, "the masters know the replica", func() bool {
			for line := range strings.Lines(locktest.Do(t, s, "CLUSTER", "NODES").(string)) {
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
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		for _, c := range []struct{ url, remedy string }{
			{servers[0].URL(), "?cluster at the end"},
			{locktest.SharedOf(t, binary, 1)[0].URL() + "?cluster", "without ?cluster"},
		} {
			if _, err := awaitRefusal(t, locktest.Open(t, locktest.Config(c.url))); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), c.remedy) {
				t.Errorf("%s: %v, want a refusal with %q", c.url, err, c.remedy)
			}
		}
		for _, s := range servers { // one of them has the deployment's keys
			if r := locktest.Examine(t, locktest.Config(s.URL()))[0]; r.Status != doctor.StatusUnfit || !strings.Contains(fmt.Sprint(r.Reason), "?cluster at the end") {
				t.Errorf("a master examined as a server: %v because of %v (%v)", r.Status, r.Reason, r.Err)
			}
		}
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, locktest.Config(servers[2].URL()+"?cluster")), storm.NameAt(0))
		if err != nil {
			t.Fatalf("by one address of it: %v", err)
		}
		locktest.Unlock(t, lock)
		report := locktest.Examine(t, locktest.Config(locktest.SharedOf(t, binary, 1)[0].URL()+"?cluster"))[0]
		if report.Status != doctor.StatusUnclear || report.Err == nil {
			t.Errorf("a server examined as a Cluster: %+v", report)
		}
		if err := locktest.Open(t, locktest.Config(clusterURL(servers))).Reset(t.Context(), "n0"); err == nil || !strings.Contains(err.Error(), "second holder: use another Deployment once no lock is held") {
			t.Errorf("reset: %v, want an error that says what to do", err)
		}
	})
}

// awaitRefusal tries until the node was reached.
func awaitRefusal(t *testing.T, client *redlatch.Client) (*redlatch.Lock, error) {
	t.Helper()
	deadline := time.Now().Add(locktest.Patience)
	for {
		lock, err := client.TryLock(t.Context(), "x")
		if !errors.Is(err, redlatch.ErrNoQuorum) || time.Now().After(deadline) {
			return lock, err
		}
	}
}
