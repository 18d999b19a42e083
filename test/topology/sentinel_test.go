package topology

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// watched is a master with replicas that three Sentinels watch.
type watched struct {
	master    *redistest.Server
	replicas  []*redistest.Server
	sentinels []*redistest.Server
}

func newWatched(t *testing.T, replicas int, options redistest.Options) watched {
	t.Helper()
	w := watched{master: redistest.New(t, options)}
	for range replicas {
		w.replicas = append(w.replicas, redistest.NewReplica(t, w.master, options))
	}
	for range 3 {
		w.sentinels = append(w.sentinels, redistest.NewSentinel(t, "main", w.master, 2))
	}
	for _, s := range w.sentinels {
		if err := s.AwaitReplicas(locktest.Within(t, locktest.Patience), "main", replicas); err != nil {
			t.Fatal(err)
		}
		locktest.Await(t, "the Sentinels know each other", func() bool {
			return len(locktest.Do(t, s, "SENTINEL", "SENTINELS", "main").([]any)) == 2
		})
	}
	return w
}

func (w watched) url() string {
	return fmt.Sprintf("redis://:s3cret@%s?addr=%s&addr=%s&master_set=main", w.sentinels[0].Addr(), w.sentinels[1].Addr(), w.sentinels[2].Addr())
}

// next waits for the failover and returns the new master.
func (w watched) next(t *testing.T) *redistest.Server {
	t.Helper()
	var next *redistest.Server
	locktest.Await(t, "the Sentinels agree on a new master", func() bool {
		votes := make(map[string]int)
		for _, s := range w.sentinels {
			address, err := s.MasterAddr("main")
			if err != nil {
				t.Fatal(err)
			}
			votes[address]++
		}
		for _, r := range w.replicas {
			if votes[r.Addr()] > 1 {
				next = r
			}
		}
		return next != nil
	})
	return next
}

var sentinelOptions = redistest.Options{Password: "s3cret"}

// A lock that the replicas have acknowledged outlives the failover of its
// master: its holder goes on, and nobody else comes in.
func TestSentinelFailoverKeepsAnAcknowledgedLock(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		options := sentinelOptions
		options.Binary = binary
		w := newWatched(t, 2, options)
		conf := locktest.Config(w.url())
		conf.NodeTimeout, conf.Replicas.Timeout = 400*time.Millisecond, 300*time.Millisecond
		conf.TTL = 30 * time.Second // more than a failover takes on a starved machine
		conf.Replicas.Count = 1
		holder := locktest.Open(t, conf)
		conf.Replicas.Count = 0
		other := locktest.Open(t, conf)
		lock, err := locktest.AwaitAnswer(t, holder, "x")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range w.replicas {
			locktest.AwaitValue(t, r, "x", locktest.Value(t, w.master, "x")) // whichever is promoted
		}

		w.master.Kill()
		next := w.next(t)
		locktest.Await(t, "the holder extends at the new master", func() bool {
			return lock.Extend(t.Context(), conf.TTL) == nil
		})
		if locktest.Value(t, next, "x") == "" {
			t.Fatal("the new master does not have the lock")
		}
		if _, err := locktest.AwaitAnswer(t, other, "x"); !errors.Is(err, redlatch.ErrHeld) {
			t.Fatalf("another: %v, want ErrHeld", err)
		}
		locktest.Unlock(t, lock)
		again, err := locktest.AwaitAnswer(t, other, "x")
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= lock.Token() {
			t.Errorf("token %d follows %d", again.Token(), lock.Token())
		}
		locktest.Unlock(t, again)
	})
}

// The former master hangs and does not die, so no connection to it ends; and
// the one that is promoted does not vote for what it may have missed.
func TestSentinelFailoverFromAHungMaster(t *testing.T) {
	t.Parallel()
	w := newWatched(t, 1, sentinelOptions)
	conf := locktest.Config(w.url())
	conf.NoQuarantine = false
	conf.TTL = 30 * time.Second
	conf.MaxTTL = conf.TTL
	client := locktest.Open(t, conf)
	locktest.Vouch(t, client, "n0")
	lock := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())

	if err := w.master.Pause(); err != nil {
		t.Fatal(err)
	}
	next := w.next(t)
	if _, err := locktest.AwaitAnswer(t, client, "y"); !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "promoted") {
		t.Fatalf("got %v, want the promoted server not admitted", err)
	}
	err := locktest.InTime(func() error { return lock.Extend(t.Context(), conf.TTL) })
	if !errors.Is(err, redlatch.ErrNotAdmitted) && lock.Err() == nil {
		t.Errorf("an extension at the promoted server: %v, want ErrNotAdmitted", err)
	}
	// An operator knows better.
	locktest.Vouch(t, client, "n0")
	locktest.TryLock(t, client, "y")
	if locktest.Value(t, next, "y") == "" {
		t.Error("the lock is not at the new master")
	}
	// The former one comes back, as a master at first, and nobody is there.
	if err := w.master.Resume(); err != nil {
		t.Fatal(err)
	}
	again := locktest.TryLock(t, client, "z")
	if locktest.Value(t, next, "z") == "" {
		t.Error("the lock is not at the new master")
	}
	locktest.Unlock(t, again)
}

// The Sentinels name another master while the former one lives, and nothing but
// they tells of it.
func TestSentinelsNameAnotherMaster(t *testing.T) {
	t.Parallel()
	w := newWatched(t, 0, sentinelOptions)
	next := redistest.New(t, sentinelOptions)
	conf := locktest.Config(w.url())
	client := locktest.Open(t, conf)
	lock, err := locktest.AwaitAnswer(t, client, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range w.sentinels {
		locktest.Do(t, s, "SENTINEL", "REMOVE", "main")
		locktest.Do(t, s, "SENTINEL", "MONITOR", "main", "127.0.0.1", fmt.Sprint(next.Port()), "2")
	}
	locktest.Await(t, "locks are at the other master", func() bool {
		lock, err := client.TryLock(t.Context(), "y")
		if err != nil {
			return false
		}
		there := locktest.Value(t, next, "y") != ""
		lock.Unlock(t.Context()) // which may meet the change
		return there
	})
	// That one has never heard of the lock.
	if err := locktest.InTime(func() error { return lock.Extend(t.Context(), conf.TTL) }); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("extend: %v, want ErrLost", err)
	}
}

// The servers and the Sentinels may have passwords of their own, and speak TLS.
func TestSentinelCredentials(t *testing.T) {
	t.Parallel()
	master := redistest.New(t, redistest.Options{Password: "s3cret", TLS: true})
	sentinel := redistest.NewSentinel(t, "main", master, 1, redistest.Options{Password: "sesame"})
	url := fmt.Sprintf("rediss://:s3cret@%s?master_set=main", sentinel.Addr())
	conf := locktest.Config(url + "&sentinel_password=sesame")
	conf.TLS = master.TLSConfig()
	lock, err := locktest.AwaitAnswer(t, locktest.Open(t, conf), "x")
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, lock)
	conf = locktest.Through(conf, url)
	if _, err := locktest.TryInTime(t, locktest.Open(t, conf), "x"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without the Sentinel's password: %v, want its refusal", err)
	}
}

// A majority of the Sentinels is believed, not the first.
func TestSentinelThatIsBehind(t *testing.T) {
	t.Parallel()
	w := newWatched(t, 1, sentinelOptions)
	// The first one watches another server under that name.
	other := redistest.New(t, sentinelOptions)
	w.sentinels[0] = redistest.NewSentinel(t, "main", other, 2)
	client := locktest.Open(t, locktest.Config(w.url()))
	lock, err := locktest.AwaitAnswer(t, client, "x")
	if err != nil {
		t.Fatal(err)
	}
	if locktest.Value(t, w.master, "x") == "" || locktest.Value(t, other, "x") != "" {
		t.Error("the lock is not where most of the Sentinels say")
	}
	locktest.Unlock(t, lock)

	conf := locktest.Config(strings.Replace(w.url(), "master_set=main", "master_set=mian", 1))
	if _, err := locktest.Open(t, conf).TryLock(t.Context(), "x"); !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), "mian") {
		t.Errorf("got %v, want an error that names the master nobody knows", err)
	}
}
