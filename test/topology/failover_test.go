package topology

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// switchRoles makes the replica the master, and the master its replica. The address leads to that one still.
func (r replicated) switchRoles(t *testing.T) {
	t.Helper()
	locktest.Do(t, r.replica, "REPLICAOF", "NO", "ONE")
	locktest.Do(t, r.master, "REPLICAOF", "127.0.0.1", fmt.Sprint(r.replica.Port()))
}

// failBack has the replica take its master's place, and give it back: the master has lost
// what was held back from the replica. at is done to the replica in between. It returns the
// master's time before it is one again, which is as soon as it has the data. All
// connections stay open.
func (r replicated) failBack(t *testing.T, at func()) time.Time {
	t.Helper()
	locktest.Do(t, r.replica, "REPLICAOF", "NO", "ONE")
	at()
	conn, err := r.master.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Do("REPLICAOF", "127.0.0.1", fmt.Sprint(r.replica.Port())); err != nil {
		t.Fatal(err)
	}
	before := locktest.ServerTime(t, r.master)
	locktest.Await(t, "the former master has its replica's data", func() bool {
		info, err := conn.Do("INFO", "replication")
		return err == nil && strings.Contains(info.(string), "master_link_status:up")
	})
	if _, err := conn.Do("REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	return before
}

// replicated is a master behind a proxy, which a failover retargets as a moved
// address would be, and a replica whose stream can be held back.
type replicated struct {
	master, replica *redistest.Server
	address, stream *redistest.Proxy
}

func newReplicated(t *testing.T, options redistest.Options) replicated {
	t.Helper()
	r := replicated{master: redistest.New(t, options)}
	r.stream = redistest.NewProxy(t, r.master.Addr())
	r.address = redistest.NewProxy(t, r.master.Addr())
	options.ReplicaOf = r.stream.Addr()
	r.replica = redistest.NewReplica(t, r.master, options)
	conn, err := r.master.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A replica that has just got its data acknowledges nothing for a second.
	locktest.Await(t, "the replica acknowledges", func() bool {
		if _, err := conn.Do("SET", "before", "x"); err != nil {
			t.Fatal(err)
		}
		acks, err := conn.Do("WAIT", "1", "100")
		if err != nil {
			t.Fatal(err)
		}
		return acks == int64(1)
	})
	return r
}

// config is that of a client of r, with time enough for a starved machine.
func (r replicated) config() redlatch.Config {
	c := locktest.Config(r.address.URL())
	c.NodeTimeout, c.Replicas.Timeout = 400*time.Millisecond, 300*time.Millisecond
	return c
}

// failOver has the replica take the place of its master, which is killed.
func (r replicated) failOver(t *testing.T) {
	t.Helper()
	r.master.Kill()
	locktest.Do(t, r.replica, "REPLICAOF", "NO", "ONE")
	r.address.Retarget(r.replica.Addr())
	r.address.Cut()
}

// The race of the paper: A acquires the lock at the master, which crashes before
// the write reaches the replica; the replica is promoted, and B acquires the
// lock that A holds. With a plain lock this happens, and each remedy prevents
// it, or the harm of it, in its own way.
func TestFailoverTakesTheLockAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		remedy func(*redlatch.Config)
		// acquires: A reports the lock held though the replica lacks it.
		// violated: then B has it at the same time.
		acquires, violated bool
	}{
		{"plain", func(*redlatch.Config) {}, true, true},
		{"an acknowledgement by the replica", func(c *redlatch.Config) { c.Replicas.Count = 1 }, false, false},
		{"the quarantine", func(c *redlatch.Config) { c.NoQuarantine = false }, true, false},
	} {
		locktest.EachFlavor(t, func(t *testing.T, binary string) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := newReplicated(t, redistest.Options{Binary: binary})
				conf := r.config()
				conf.MaxTTL = conf.TTL
				c.remedy(&conf)
				a := locktest.Open(t, conf)
				conf.Replicas.Count = 0 // the promoted one has no replica to acknowledge
				b := locktest.Open(t, conf)
				if !conf.NoQuarantine {
					if err := a.Admit(t.Context(), "n0"); err != nil {
						t.Fatal(err)
					}
				}
				locktest.Await(t, "the first lock", func() bool {
					lock, err := a.TryLock(t.Context(), "warm")
					if err == nil {
						locktest.Unlock(t, lock)
					}
					return err == nil
				})
				r.stream.HoldBack(redistest.Replies, true)
				first, err := a.TryLock(t.Context(), "x")
				if c.acquires && locktest.Late(err) { // a busy machine
					first, err = locktest.TryLock(t, a, "x"), nil
				}
				if (err == nil) != c.acquires {
					t.Fatalf("A: %v", err)
				}
				r.failOver(t)
				second, err := locktest.AwaitAnswer(t, b, "x")
				switch {
				case c.violated:
					if err != nil {
						t.Fatal(err)
					}
					if first.Err() != nil || second.Err() != nil {
						t.Fatalf("A: %v, B: %v: want both to hold the lock", first.Err(), second.Err())
					}
					// The remedy that is left: what they write to asks for the token.
					if second.Token() <= first.Token() {
						t.Fatalf("B's token %d is not larger than A's, %d", second.Token(), first.Token())
					}
					var file fence.Memory
					if err := file.Enter(t.Context(), "x", second.Token()); err != nil {
						t.Errorf("B is refused: %v", err)
					}
					if err := file.Enter(t.Context(), "x", first.Token()); !errors.Is(err, fence.ErrStale) {
						t.Errorf("A may write after B: %v", err)
					}
				case c.acquires:
					if !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "promoted") {
						t.Fatalf("B: %v, want the promoted replica not admitted", err)
					}
				case err != nil: // nobody was told that it had the lock
					t.Fatalf("B: %v", err)
				}
			})
		})
	}
}

// Fewer acknowledgements than asked for: the lock is not held, the error says
// how many there were, and nothing is left.
func TestTooFewReplicasAcknowledge(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.Replicas.Count = 2 // one more than there are: at least one is not enough
		client := locktest.Open(t, conf)
		awaitNotReplicated(t, "1 of 2 replicas", func() error { return locktest.ErrorOf(client.TryLock(t.Context(), "x")) })
		locktest.AwaitValue(t, r.master, "x", "")

		conf.Replicas.Count = 1
		client = locktest.Open(t, conf)
		lock := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		if v := locktest.Value(t, r.replica, "x"); v == "" || v != locktest.Value(t, r.master, "x") {
			t.Fatalf("held, and the replica has %q", v)
		}
		// The replica stops listening: an extension does not count, and the next
		// lock is not acquired.
		r.stream.HoldBack(redistest.Replies, true)
		until := lock.Until()
		awaitNotReplicated(t, "0 of 1 replicas", func() error { return lock.Extend(t.Context(), conf.TTL) })
		if !lock.Until().Equal(until) || lock.Err() != nil {
			t.Fatalf("an extension that missed changed the lock: until %v, before %v, %v", lock.Until(), until, lock.Err())
		}
		awaitNotReplicated(t, "0 of 1 replicas", func() error { return locktest.ErrorOf(client.TryLock(t.Context(), "y")) })
		locktest.AwaitValue(t, r.master, "y", "")

		r.stream.HoldBack(redistest.Replies, false)
		// The first may meet what was held back.
		locktest.Await(t, "it is extended", func() bool { return lock.Extend(locktest.Within(t, locktest.Patience), conf.TTL) == nil })
		locktest.Unlock(t, lock)
	})
}

// awaitNotReplicated makes a call that is not to succeed until its error says that so many
// replicas have acknowledged it: on a busy machine the master or a replica may be late.
func awaitNotReplicated(t *testing.T, words string, call func() error) {
	t.Helper()
	locktest.Await(t, words, func() bool {
		err := call()
		if err == nil {
			t.Fatalf("it succeeded, want %s", words)
		}
		verdict := locktest.VerdictOf(t, err, 0).Verdict
		if verdict != redlatch.VoteNotReplicated && !locktest.Late(err) && !errors.Is(err, redlatch.ErrHeld) { // by the last try
			t.Fatalf("got %v, want %s", err, words)
		}
		return verdict == redlatch.VoteNotReplicated && errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), words)
	})
}

// oneshots opens a client for one-shot calls that are made of commands.
func oneshots(t *testing.T, c redlatch.Config, commands oneshot.Commands) *oneshot.Client {
	t.Helper()
	shots, err := oneshot.NewWith(locktest.Open(t, c), oneshot.Config{Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	return shots
}

// Whichever way a lock is acquired, it is acknowledged.
func TestEveryWayIsAcknowledged(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, redistest.Options{})
	for _, commands := range []oneshot.Commands{oneshot.CommandsAuto, oneshot.CommandsScript, oneshot.CommandsWatch} {
		conf := r.config()
		conf.Replicas.Count = 1
		client := oneshots(t, conf, commands)
		name := fmt.Sprint("x", commands)
		locktest.Await(t, "it is taken", func() bool {
			taken, err := client.Take(t.Context(), name, "me", conf.TTL)
			if err != nil && !locktest.Late(err) && locktest.VerdictOf(t, err, 0).Verdict != redlatch.VoteNotReplicated {
				t.Fatalf("take by %v: %v", commands, err)
			}
			return taken && err == nil
		})
		if v := locktest.Value(t, r.replica, name); v != "me" {
			t.Errorf("taken by %v, and the replica has %q", commands, v)
		}
		if ok, err := client.Release(t.Context(), name, "me"); (err != nil || !ok) && !locktest.Late(err) {
			t.Errorf("release by %v: %v, %v", commands, ok, err)
		}
	}

	// Handed over from one caller to the next.
	conf := r.config()
	conf.Replicas.Count = 1
	client := locktest.Open(t, conf)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			lock, err := client.Lock(locktest.Within(t, locktest.Patience), "handed")
			if err != nil {
				t.Error(err)
				return
			}
			if v := locktest.Value(t, r.replica, "handed"); v == "" || v != locktest.Value(t, r.master, "handed") {
				t.Errorf("held, and the replica has %q", v)
			}
			locktest.Unlock(t, lock)
		})
	}
	all.Wait()

	r.stream.HoldBack(redistest.Replies, true)
	for _, commands := range []oneshot.Commands{oneshot.CommandsScript, oneshot.CommandsWatch} {
		name := fmt.Sprint("y", commands)
		client := oneshots(t, conf, commands)
		awaitNotReplicated(t, "0 of 1 replicas", func() error { return locktest.ErrorOf(client.Take(t.Context(), name, "me", conf.TTL)) })
		locktest.AwaitValue(t, r.master, name, "")
	}
}

// Many callers share the acknowledgements.
func TestAcknowledgementsAreShared(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, redistest.Options{})
	proxy := redistest.NewProxy(t, r.master.Addr())
	conf := locktest.Through(r.config(), proxy.URL())
	conf.Replicas.Count = 1
	client := locktest.Open(t, conf)
	locktest.Unlock(t, locktest.TryLock(t, client, "warm"))
	r.stream.Delay(redistest.Replies, 30*time.Millisecond, 0)
	const callers = 100
	fewest := callers
	for round := 0; round < 10 && fewest > callers/4; round++ { // a busy machine's callers come one by one
		waits := proxy.Stats().Seen["WAIT"]
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				lock, err := client.Lock(locktest.Within(t, locktest.Patience), fmt.Sprint("x", i))
				if err != nil {
					t.Error(err)
					return
				}
				if locktest.Value(t, r.replica, lock.Name()) == "" {
					t.Errorf("%s is held and not replicated", lock.Name())
				}
				locktest.Unlock(t, lock)
			})
		}
		all.Wait()
		fewest = min(fewest, proxy.Stats().Seen["WAIT"]-waits)
	}
	if fewest > callers/4 {
		t.Errorf("%d callers needed %d WAITs at least", callers, fewest)
	}
}

// The server behind the address is another one by the time the replicas are
// asked: its answer says nothing about what the first one granted.
func TestAcknowledgementsOfAnotherServerDoNotCount(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, redistest.Options{})
	other := newReplicated(t, redistest.Options{})
	conf := r.config()
	conf.Replicas.Count = 1
	client := locktest.Open(t, conf)
	locktest.Unlock(t, locktest.TryLock(t, client, "warm"))
	r.address.OnCommand(func(c redistest.Command) redistest.Action {
		// The WAIT's connection is renewed, and leads elsewhere.
		if c.Name() == "EVAL" && strings.Contains(c.Args[1], "INFO") && len(c.Args) == 5 {
			r.address.OnCommand(nil)
			r.address.Retarget(other.master.Addr())
			return redistest.CutBefore
		}
		return redistest.Pass
	})
	awaitNotReplicated(t, "", func() error { return locktest.ErrorOf(client.TryLock(t.Context(), "x")) })
	locktest.AwaitValue(t, r.master, "x", "")
	// From now on votes come from the one, and acknowledgements from the other.
	awaitNotReplicated(t, "former master", func() error { return locktest.ErrorOf(client.TryLock(t.Context(), "y")) })
	locktest.AwaitValue(t, r.master, "y", "")
}

// With Fsync, held means on disk.
func TestFsync(t *testing.T) {
	t.Parallel()
	always := []string{"--appendonly", "yes", "--appendfsync", "always"}
	t.Run("unknown to the server", func(t *testing.T) {
		t.Parallel()
		s := redistest.New(t, redistest.Options{Binary: "redis-server", Args: always})
		if _, err := s.Do("WAITAOF", "0", "0", "1"); err == nil {
			t.Skip("this redis-server has WAITAOF")
		}
		conf := locktest.Config(s.URL())
		conf.Replicas.Fsync, conf.NodeTimeout = true, 400*time.Millisecond
		if _, err := locktest.TryInTime(t, locktest.Open(t, conf), "x"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "WAITAOF") || !strings.Contains(err.Error(), "7.2") {
			t.Fatalf("got %v, want a refusal that names WAITAOF and the versions", err)
		}
	})
	t.Run("no append-only file", func(t *testing.T) {
		t.Parallel()
		conf := locktest.Config(redistest.New(t, redistest.Options{Binary: "valkey-server"}).URL())
		conf.Replicas.Fsync, conf.NodeTimeout = true, 400*time.Millisecond
		if _, err := locktest.TryInTime(t, locktest.Open(t, conf), "x"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "appendonly yes") {
			t.Fatalf("got %v, want a refusal that says what to set", err)
		}
	})
	t.Run("on the disks of node and replica", func(t *testing.T) {
		t.Parallel()
		r := newReplicated(t, redistest.Options{Binary: "valkey-server", Args: always})
		conf := r.config()
		conf.Replicas.Fsync, conf.Replicas.Count = true, 1
		client := locktest.Open(t, conf)
		var lock *redlatch.Lock
		locktest.Await(t, "the replica has its append-only file", func() bool {
			var err error
			lock, err = client.TryLock(t.Context(), "x")
			return err == nil
		})
		// Nothing else is written here, after which the replica would be asked again.
		locktest.Soon(t, "five locks in turn", time.Second, func(n int) time.Duration {
			start := time.Now()
			for i := range 5 {
				name := fmt.Sprint(n, i)
				locktest.Await(t, name, func() bool { return locktest.ErrorOf(client.TryLock(t.Context(), name)) == nil })
			}
			return time.Since(start)
		})
		r.replica.Kill()
		if err := r.replica.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v := locktest.Value(t, r.replica, "x"); v == "" || v != locktest.Value(t, r.master, "x") {
			t.Fatalf("the replica came back from its disk with %q", v)
		}
		locktest.Unlock(t, lock)
		locktest.Do(t, r.replica, "CONFIG", "SET", "appendonly", "no")
		awaitNotReplicated(t, "0 of 1 replicas acknowledged it within 300ms as on disk", func() error { return locktest.ErrorOf(client.TryLock(t.Context(), "y")) })

		locktest.Do(t, r.master, "CONFIG", "SET", "appendonly", "no")
		if _, err := client.Lock(locktest.Within(t, locktest.Patience), "y"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "appendonly yes") {
			t.Errorf("the master has no append-only file any more: %v", err)
		}
	})
}

// A master that is demoted for a moment takes over its former replica's data,
// which may lack its own last writes. Its process, its scripts and its admission
// are the ones of before.
func TestMasterAgainIsNotAdmitted(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.MaxTTL, conf.NoQuarantine = conf.TTL, false
		client := locktest.Open(t, conf)
		if err := client.Admit(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, locktest.TryLock(t, client, "warm"))
		locktest.Await(t, "the replica knows the deployment", func() bool {
			return locktest.Do(t, r.replica, "EXISTS", "redlatch:{"+conf.Deployment+"}:admitted") == int64(1)
		})
		r.stream.HoldBack(redistest.Replies, true)
		held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())

		r.switchRoles(t)
		if err := r.master.AwaitLink(locktest.Within(t, locktest.Patience)); err != nil {
			t.Fatal(err)
		}
		locktest.Do(t, r.master, "REPLICAOF", "NO", "ONE")
		if v := locktest.Value(t, r.master, "x"); v != "" {
			t.Fatalf("the master has not lost the lock: %q", v)
		}
		r.address.Cut()
		if lock, err := locktest.AwaitAnswer(t, client, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Fatalf("lock %v, error %v, while the first holder's is %v: want ErrNotAdmitted", lock, err, held.Err())
		}
		// Whoever comes next is not let in by what is there of before.
		if lock, err := locktest.AwaitAnswer(t, locktest.Open(t, conf), "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Fatalf("another client: lock %v, error %v: want ErrNotAdmitted", lock, err)
		}
	})
}
