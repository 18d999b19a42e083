package topology

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// failingBack is a replicated node on which two clients lock by connections that outlive the
// failback, one of them idle and one, if it is not, busy: that one may connect anew.
type failingBack struct {
	replicated
	config        redlatch.Config
	client, other *redlatch.Client
	busy          bool
	stop          func()
}

func newFailingBack(t *testing.T, binary string, maxTTL time.Duration, busy bool) *failingBack {
	t.Helper()
	r := newReplicated(t, redistest.Options{Binary: binary})
	f := &failingBack{replicated: r, config: r.config(), busy: busy, stop: func() {}}
	f.config.TTL, f.config.MaxTTL, f.config.NoQuarantine = maxTTL, maxTTL, false
	f.client = locktest.Open(t, f.config)
	locktest.Vouch(t, f.client, "n0")
	locktest.Unlock(t, locktest.TryLock(t, f.client, "warm"))
	f.other = locktest.Open(t, f.config)
	if busy {
		done := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if lock, err := f.client.TryLock(t.Context(), "busy"); err == nil {
					lock.Unlock(t.Context())
				}
			}
		})
		f.stop = sync.OnceFunc(func() { close(done); group.Wait() })
		t.Cleanup(f.stop)
	}
	return f
}

// holdBack keeps what is written from now on from the replica, which has the rest.
func (f *failingBack) holdBack(t *testing.T, keys ...string) {
	t.Helper()
	locktest.Await(t, "the replica has the deployment and the locks", func() bool {
		for _, key := range append(keys, "redlatch:{"+f.config.Deployment+"}:admitted") {
			if locktest.Do(t, f.replica, "EXISTS", key) != int64(1) {
				return false
			}
		}
		return true
	})
	f.stream.HoldBack(redistest.Replies, true)
}

// admitAtReplica has another client lock at the server that is the master for a while.
func (f *failingBack) admitAtReplica(t *testing.T) {
	t.Helper()
	c := locktest.Through(f.config, f.replica.URL())
	client := locktest.Open(t, c)
	defer client.Close()
	locktest.Vouch(t, client, "n0")
	locktest.Unlock(t, locktest.TryLock(t, client, "elsewhere"))
}

// usedSince says which connections the clients have sent commands on since it was called, by
// their numbers: 1 is the client's first, 2 the other's.
func (f *failingBack) usedSince() func() map[int]bool {
	var mu sync.Mutex
	used := map[int]bool{}
	f.address.OnCommand(func(c redistest.Command) redistest.Action {
		mu.Lock()
		defer mu.Unlock()
		used[c.Conn] = true
		return redistest.Pass
	})
	return func() map[int]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(used)
	}
}

// eachFailback runs f for a client that is idle and one that is busy, with an admission at the
// other server in between and without.
func eachFailback(t *testing.T, maxTTL time.Duration, f func(t *testing.T, f *failingBack, between func())) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, busy := range []bool{false, true} {
			for _, admitted := range []bool{false, true} {
				t.Run(fmt.Sprintf("busy=%t,admittedBetween=%t", busy, admitted), func(t *testing.T) {
					t.Parallel()
					back := newFailingBack(t, binary, maxTTL, busy)
					f(t, back, func() {
						if admitted {
							back.admitAtReplica(t)
						}
					})
				})
			}
		}
	})
}

// The first step of a client whose connection outlived the failback is not granted: neither
// the lock that the master has lost nor any other, by no call.
func TestNoVoteRightAfterAFailback(t *testing.T) {
	eachFailback(t, 20*time.Second, func(t *testing.T, f *failingBack, between func()) {
		f.holdBack(t)
		held := locktest.TryLock(t, f.other, "x", redlatch.WithoutRenewal())
		f.failBack(t, between)
		used := f.usedSince()
		if v := locktest.Value(t, f.master, "x"); v != "" {
			t.Fatalf("the master has not lost the lock: %q", v)
		}
		for _, name := range []string{"x", "y"} {
			if lock, err := locktest.AwaitAnswer(t, f.client, name); !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Fatalf("%s: lock %v, error %v, while the first holder's is %v: want ErrNotAdmitted", name, lock, err, held.Err())
			}
		}
		take := func() error { return locktest.ErrorOf(oneshot.New(f.client).Take(t.Context(), "x", "me", time.Second)) }
		if err := locktest.InTime(take); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Errorf("take: %v", err)
		}
		f.stop()
		// Who comes next is not let in by what is there of before, and who had it has lost it.
		if lock, err := locktest.AwaitAnswer(t, locktest.Open(t, f.config), "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Errorf("another client: lock %v, error %v", lock, err)
		}
		if err := held.Extend(t.Context(), f.config.TTL); err == nil {
			t.Error("a lock was extended that the node had lost")
		}
		if v := locktest.Value(t, f.master, "x"); v != "" {
			t.Errorf("there is a key again: %q", v)
		}
		// Who was answered by the replica connects anew, if the address leads to a master again by the time it looks.
		if u := used(); !u[1] && !f.busy || !u[2] {
			t.Fatalf("the clients have reconnected: used since were connections %v, want 1 and 2", u)
		}
	})
}

// awaitQueued waits until somebody waits for the lock.
func awaitQueued(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	locktest.Await(t, "somebody waits for "+name, func() bool {
		for _, key := range locktest.Do(t, server, "KEYS", "*queue:"+name).([]any) {
			return locktest.Do(t, server, "ZCARD", key.(string)) == int64(1)
		}
		return false
	})
}

// One who is queued for a lock while its node fails over and back is not granted it before
// the quarantine is over, by the node's clock.
func TestWaitersSeeAFailback(t *testing.T) {
	eachFailback(t, 3*time.Second, func(t *testing.T, f *failingBack, between func()) {
		held := locktest.TryLock(t, f.other, "z", redlatch.WithoutRenewal()) // which the replica has as well
		f.holdBack(t, "z")
		lost := locktest.TryLock(t, f.other, "x")
		type outcome struct {
			lock *redlatch.Lock
			err  error
		}
		waited := make(chan outcome, 2)
		ctx := locktest.Within(t, 2*locktest.Patience)
		for _, name := range []string{"x", "new"} {
			go func() {
				if name == "new" {
					<-lost.Context().Done() // after the failback
				}
				lock, err := f.client.Lock(ctx, name)
				waited <- outcome{lock, err}
			}()
		}
		awaitQueued(t, f.master, "x")
		since := f.failBack(t, between)
		for range 2 {
			o := <-waited
			if o.err != nil {
				t.Fatal(o.err)
			}
			if passed := locktest.ServerTime(t, f.master).Sub(since); passed < f.config.MaxTTL+4*time.Second {
				t.Errorf("%q was granted after %v, want %v", o.lock.Name(), passed, f.config.MaxTTL+4*time.Second)
			}
			locktest.Unlock(t, o.lock)
		}
		if held.Err() == nil || lost.Err() == nil {
			t.Errorf("the locks of before: %v, %v", held.Err(), lost.Err())
		}
	})
}

// A call that waits while the server that it has known as a master is a replica goes on until that is a master again: it
// is one that was in the queue, or one that comes. One that does not wait learns what is so.
func TestCallsWaitWhileTheMasterIsAReplica(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		client, other := locktest.Open(t, r.config()), locktest.Open(t, r.config())
		held := locktest.TryLock(t, other, "queued", redlatch.WithoutRenewal(), redlatch.WithTTL(3*time.Second))
		locktest.Unlock(t, locktest.TryLock(t, client, "known"))
		ctx := locktest.Within(t, 2*locktest.Patience)
		refused := make(map[string]<-chan struct{})
		calls := map[string]func(redlatch.Option) (*redlatch.Lock, error){
			"queued": func(o redlatch.Option) (*redlatch.Lock, error) { return client.Lock(ctx, "queued", o) },
			"Lock":   func(o redlatch.Option) (*redlatch.Lock, error) { return client.Lock(ctx, "x", o) },
			"unqueued": func(o redlatch.Option) (*redlatch.Lock, error) {
				return client.Lock(ctx, "y", o, redlatch.WithoutQueue())
			},
			"LockAll": func(o redlatch.Option) (*redlatch.Lock, error) { return client.LockAll(ctx, []string{"a", "b"}, o) },
			"RLock":   func(o redlatch.Option) (*redlatch.Lock, error) { return client.RLock(ctx, "read", o) },
			"Acquire": func(o redlatch.Option) (*redlatch.Lock, error) { return client.Acquire(ctx, "permits", 2, o) },
		}
		waited := make(chan error, len(calls))
		call := func(name string) {
			once, done := sync.Once{}, make(chan struct{})
			refused[name] = done
			report := redlatch.WithWaitReport(func(err error) {
				if strings.Contains(err.Error(), "replica") {
					once.Do(func() { close(done) })
				}
			})
			go func() {
				lock, err := calls[name](report)
				if err != nil {
					waited <- fmt.Errorf("%s: %w", name, err)
					return
				}
				waited <- lock.Unlock(ctx)
			}()
		}
		call("queued")
		awaitQueued(t, r.master, "queued")
		r.switchRoles(t)
		<-held.Context().Done()
		locktest.Await(t, "TryLock says so", func() bool {
			_, err := client.TryLock(t.Context(), "x")
			return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "replica")
		})
		for name := range calls {
			if name != "queued" {
				call(name)
			}
		}
		for name, told := range refused {
			select {
			case <-told:
			case err := <-waited:
				t.Fatal(err)
			case <-ctx.Done():
				t.Fatalf("%s was not told", name)
			}
		}
		locktest.Do(t, r.master, "REPLICAOF", "NO", "ONE")
		for range calls {
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}
	})
}

// A lock whose key went with the data and came back is extended, as nobody else was given
// it; it is its key that counts.
func TestExtendAfterAFailback(t *testing.T) {
	eachFailback(t, 20*time.Second, func(t *testing.T, f *failingBack, between func()) {
		held := locktest.TryLock(t, f.other, "x", redlatch.WithoutRenewal())
		f.holdBack(t, "x")
		lost := locktest.TryLock(t, f.other, "y", redlatch.WithoutRenewal())
		f.failBack(t, between)
		extended, err := true, error(nil)
		locktest.Await(t, "the node has answered in time", func() bool {
			extended, err = oneshot.New(f.other).Extend(t.Context(), "x", hook.LeaseOf(held).HolderID(), f.config.TTL)
			return !errors.Is(err, redlatch.ErrNoQuorum)
		})
		if extended || !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Errorf("an id, by a client that was idle: %t, %v, want ErrNotAdmitted", extended, err)
		}
		for name, lock := range map[string]*redlatch.Lock{"x, whose key is there": held, "y, whose key is gone": lost} {
			if err := lock.Extend(t.Context(), f.config.TTL); err == nil {
				t.Errorf("%s, was extended by a node that is kept out", name)
			}
		}
		if v := locktest.Value(t, f.master, "y"); v != "" {
			t.Errorf("there is a key again: %q", v)
		}
		f.stop()
		locktest.Unlock(t, held)
	})
}

// A server that has had no replica for repl-backlog-ttl forgets that it was one. What it has
// received as one tells still.
func TestAFailbackLongAgo(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		f := newFailingBack(t, binary, 20*time.Second, false)
		f.holdBack(t)
		held := locktest.TryLock(t, f.other, "x", redlatch.WithoutRenewal())
		locktest.Do(t, f.master, "CONFIG", "SET", "repl-backlog-ttl", "1")
		f.failBack(t, func() {})
		locktest.Await(t, "the master has forgotten that it was a replica", func() bool {
			info, err := f.master.Info("replication")
			return err == nil && info["second_repl_offset"] == "-1"
		})
		for what, client := range map[string]*redlatch.Client{"that was there": f.client, "that comes": locktest.Open(t, f.config)} {
			if lock, err := locktest.AwaitAnswer(t, client, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Errorf("a client %s: lock %v, error %v, while the first holder's is %v: want ErrNotAdmitted", what, lock, err, held.Err())
			}
		}
	})
}

// A quarantine that begins anew, as the server was a replica meanwhile, lasts no less than the one
// that it had begun: that of a change of the deployment is as long as the longer of its settings.
func TestAFailbackShortensNoQuarantine(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		const before, after = 10 * time.Minute, 10 * time.Second
		f := newFailingBack(t, binary, before, false)
		held := locktest.TryLock(t, f.other, "x", redlatch.WithoutRenewal())
		c := locktest.WithMaxTTL(f.config, after)
		client := locktest.Open(t, c)
		if err := client.Reset(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		quarantine := "redlatch:{" + c.Deployment + "}:quarantine"
		locktest.Await(t, "the replica has the quarantine", func() bool {
			return locktest.Do(t, f.replica, "EXISTS", quarantine) == int64(1)
		})
		f.failBack(t, func() {})
		_, err := locktest.AwaitAnswer(t, client, "y")
		if !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Fatalf("while the first holder's is %v: %v, want ErrNotAdmitted", held.Err(), err)
		}
		if left := locktest.VerdictOf(t, err, 0).Left; left < before/2 {
			t.Errorf("it is to vote in %v, and a lock of %v may be held", left, before)
		}
		// So it is by what was noted, which the next look reads.
		_, err = locktest.AwaitAnswer(t, locktest.Open(t, c), "y")
		if left := locktest.VerdictOf(t, err, 0).Left; left < before/2 {
			t.Errorf("another client: in %v", left)
		}
	})
}

// The first replica changes its master's replication id. No lock is lost by that, and no
// quarantine begins: neither for a client that was there nor for one that comes.
func TestTheFirstReplicaCostsNoQuarantine(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		master := redistest.New(t, redistest.Options{Binary: binary})
		c := locktest.WithMaxTTL(locktest.WithQuarantine(master.URL()), 20*time.Second)
		client, idle := locktest.Open(t, c), locktest.Open(t, c)
		locktest.Vouch(t, client, "n0")
		held := locktest.TryLock(t, client, "x")
		locktest.Unlock(t, locktest.TryLock(t, idle, "y"))
		id := func() string {
			info, err := master.Info("replication")
			if err != nil {
				t.Fatal(err)
			}
			return info["master_replid"]
		}
		before := id()
		redistest.NewReplica(t, master)
		if id() == before {
			t.Fatal("the replication id is the one of before")
		}
		for what, client := range map[string]*redlatch.Client{"that was there": client, "that was idle": idle, "that comes": locktest.Open(t, c)} {
			if _, err := locktest.TryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("a client %s: %v, want ErrHeld", what, err)
			}
			lock, err := client.TryLock(t.Context(), "y")
			if err != nil {
				t.Errorf("a client %s: %v", what, err)
				continue
			}
			locktest.Unlock(t, lock)
		}
		locktest.Extend(t, held, c.TTL)
		locktest.Unlock(t, held)
	})
}
