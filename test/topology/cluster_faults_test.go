package topology

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// hurtCluster is a Cluster of three masters, to which things happen, and a
// deployment on it with the quarantine.
type hurtCluster struct {
	*redistest.Cluster
	config redlatch.Config
	// d is how long a master is waited for that may have forgotten locks.
	d time.Duration
}

// newHurtCluster starts one as storm.NewCluster does.
func newHurtCluster(t *testing.T, binary string, replicasEach int, maxTTL time.Duration, args ...string) *hurtCluster {
	t.Helper()
	var c hurtCluster
	c.Cluster, c.config, c.d = storm.NewCluster(t, binary, replicasEach, maxTTL, args...)
	c.config.Nodes = []string{clusterURL(c.Masters) + "#" + storm.Node}
	return &c
}

// must fails the test where what was done to the Cluster went wrong.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// admit has a client vouch for all masters.
func (c *hurtCluster) admit(t *testing.T, client *redlatch.Client) {
	t.Helper()
	storm.Admit(t, client)
}

// uptime waits until a server has been up for longer than any wait.
func (c *hurtCluster) uptime(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		locktest.Await(t, "the server has been up for long", func() bool {
			info, err := s.Info("server")
			if err != nil {
				t.Fatal(err)
			}
			up, err := strconv.Atoi(info["uptime_in_seconds"])
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(up)*time.Second > c.d+time.Second
		})
	}
}

// rivals are clients that want a lock which another has: one that has been idle
// since it used the slot, and, if busy, one that goes on using it.
type rivals struct {
	idle, busy *redlatch.Client
	config     redlatch.Config
	stop       func()
}

func newRivals(t *testing.T, c redlatch.Config, name string, busy bool) *rivals {
	t.Helper()
	r := &rivals{idle: locktest.Open(t, c), config: c, stop: func() {}}
	use := func(client *redlatch.Client) {
		lock, err := lockSoon(t, client, "{"+name+"}used")
		if err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, lock)
	}
	use(r.idle)
	if !busy {
		return r
	}
	r.busy = locktest.Open(t, c)
	use(r.busy)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			if lock, err := r.busy.TryLock(ctx, "{"+name+"}busy"); err == nil {
				lock.Unlock(ctx)
			}
			storm.Rest(ctx, time.Millisecond)
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(r.stop)
	return r
}

// chase has all of them, and one that comes now, try for the lock which held is.
// None may be granted it while held is valid, and after that each is, one after
// another. It reports whether held was valid still when they began: else this machine was so
// slow that nothing was shown.
func (r *rivals) chase(t *testing.T, held *redlatch.Lock, longest time.Duration) (shown bool) {
	t.Helper()
	if held.Err() != nil {
		t.Logf("too slow for a TTL of %v", r.config.TTL)
		return false
	}
	clients := map[string]*redlatch.Client{"idle": r.idle, "new": locktest.Open(t, r.config)}
	if r.busy != nil {
		clients["busy"] = r.busy
	}
	ctx := locktest.Within(t, time.Until(held.Until())+longest+locktest.Patience)
	var all sync.WaitGroup
	for what, client := range clients {
		all.Go(func() {
			for held.Err() == nil {
				if lock, err := client.TryLock(ctx, held.Name()); err == nil {
					if held.Err() == nil {
						t.Errorf("two holders: a client that is %s was granted the lock %v before the first holder's validity ends", what, time.Until(held.Until()))
					}
					if lock.Token() <= held.Token() {
						t.Errorf("token %d follows %d", lock.Token(), held.Token())
					}
					lock.Unlock(ctx)
					return
				}
				storm.Rest(ctx, time.Millisecond)
			}
			lock, err := client.Lock(ctx, held.Name())
			if err != nil {
				t.Errorf("a client that is %s does not get the lock: %v", what, err)
				return
			}
			if lock.Token() <= held.Token() {
				t.Errorf("token %d follows %d", lock.Token(), held.Token())
			}
			if err := lock.Unlock(ctx); err != nil {
				t.Errorf("a client that is %s: %v", what, err)
			}
		})
	}
	all.Wait()
	r.stop()
	return true
}

// lockSoon tries as awaitAnswer does. Nobody else wants the lock: what holds it is a try
// of its own whose answer was late, and which is being undone.
func lockSoon(t *testing.T, client *redlatch.Client, name string) (*redlatch.Lock, error) {
	t.Helper()
	deadline := time.Now().Add(locktest.Patience)
	for {
		lock, err := locktest.AwaitAnswer(t, client, name)
		if !errors.Is(err, redlatch.ErrHeld) || time.Now().After(deadline) {
			return lock, err
		}
		storm.Rest(t.Context(), time.Millisecond)
	}
}

// tally is how tries ended.
type tally struct {
	tries, granted int
	last           error
}

// tryAll tries for all names in turn, n times in all, by callers at once.
func tryAll(ctx context.Context, client *redlatch.Client, names []string, callers, n int) tally {
	var mu sync.Mutex // guards sum
	var sum tally
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for k := i; k < n && ctx.Err() == nil; k += callers {
				lock, err := client.TryLock(ctx, names[k%len(names)])
				if err == nil {
					err = lock.Unlock(ctx)
				}
				if errors.Is(err, redlatch.ErrHeld) {
					err = nil // by another caller
				}
				mu.Lock()
				sum.tries++
				if err == nil {
					sum.granted++
				} else {
					sum.last = err
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return sum
}

// nearlyAll wants nearly all of 200 tries granted: a busy machine may be late for one, and for
// many once.
func (c *hurtCluster) nearlyAll(t *testing.T, when string, try func() tally) {
	t.Helper()
	var sum tally
	for range 20 {
		sum = try()
		t.Logf("%s: %d of %d tries were granted", when, sum.granted, sum.tries)
		if sum.tries >= 200 && sum.granted >= sum.tries*95/100 {
			return
		}
		if sum.tries < 200 {
			break // the time for all is over
		}
	}
	t.Errorf("%s: %d of %d tries were granted, of 200; the last error: %v", when, sum.granted, sum.tries, sum.last)
}

// worksAt checks that the slot of a lock that is held is in use at the master that it
// was moved to: the lock is extended, renewed for longer than its TTL, and others in the
// slot are granted at once. It returns why the lock was lost, as it may be on a busy machine.
func (c *hurtCluster) worksAt(t *testing.T, to *redistest.Server, other *redlatch.Client, held *redlatch.Lock) error {
	t.Helper()
	if locktest.Value(t, to, held.Name()) == "" && held.Err() == nil {
		t.Fatal("the lock has not come along")
	}
	lock, err := lockSoon(t, other, "{"+held.Name()+"}more")
	if err != nil {
		t.Fatalf("another lock in the slot: %v, want it granted at once", err)
	}
	locktest.Unlock(t, lock)
	locktest.Await(t, "the lock is extended", func() bool { return held.Err() != nil || held.Extend(t.Context(), c.config.TTL) == nil })
	another, err := locktest.AwaitAnswer(t, other, held.Name())
	switch {
	case err == nil && held.Err() != nil:
		locktest.Unlock(t, another)
	case !errors.Is(err, redlatch.ErrHeld):
		t.Errorf("another: %v, want ErrHeld", err)
	}
	until := held.Until()
	locktest.Await(t, "the lock is renewed for longer than its TTL", func() bool {
		return held.Err() != nil || held.Until().Sub(until) > c.config.TTL+time.Second
	})
	return held.Err()
}

// untilKept does what is to keep a lock again where it was lost.
func untilKept(t *testing.T, keep func() (lost error)) {
	t.Helper()
	locktest.UntilKept(t, 10, func(int) error { return keep() })
}

// atOnce wants names in slots that were never used to be granted without a wait.
func (c *hurtCluster) atOnce(t *testing.T, client *redlatch.Client, names []string) {
	t.Helper()
	for _, name := range names {
		lock, err := lockSoon(t, client, name)
		if err != nil {
			t.Errorf("%s, in a slot that was never used: %v, want it granted at once", name, err)
			continue
		}
		locktest.Unlock(t, lock)
	}
}
