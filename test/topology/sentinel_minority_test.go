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

// masterStands is how long a command may go to a master that a majority of the Sentinels
// named, counted from when they were asked.
const masterStands = 3 * time.Second

// divided is a master that three Sentinels watch, one of which hears of nothing but the
// master: not of a failover by the others either. The client's way to each is a proxy.
type divided struct {
	watched
	ways []*redistest.Proxy
}

func newDivided(t *testing.T, options redistest.Options) divided {
	t.Helper()
	d := divided{watched: watched{master: redistest.New(t, options)}}
	locktest.Do(t, d.master, "ACL", "SETUSER", "alone", "on", ">s3cret", "allkeys", "+@all", "resetchannels")
	locktest.Do(t, d.master, "ACL", "SETUSER", "default", "-replicaof", "-slaveof")
	d.replicas = []*redistest.Server{redistest.NewReplica(t, d.master, options)}
	d.sentinels = []*redistest.Server{
		redistest.NewSentinel(t, "main", d.master, 2, redistest.Options{Args: []string{"--sentinel", "auth-user", "main", "alone"}}),
		redistest.NewSentinel(t, "main", d.master, 2),
		redistest.NewSentinel(t, "main", d.master, 2),
	}
	for _, s := range d.sentinels[1:] {
		if err := s.AwaitReplicas(locktest.Within(t, locktest.Patience), "main", 1); err != nil {
			t.Fatal(err)
		}
		locktest.Await(t, "the two Sentinels know each other", func() bool {
			return len(locktest.Do(t, s, "SENTINEL", "SENTINELS", "main").([]any)) == 1
		})
	}
	d.ways = redistest.Proxies(t, d.sentinels)
	return d
}

// minority is the URL by the proxies.
func (d divided) minority() string {
	return fmt.Sprintf("redis://:s3cret@%s?addr=%s&addr=%s&master_set=main", d.ways[0].Addr(), d.ways[1].Addr(), d.ways[2].Addr())
}

// cut cuts the minority off from two Sentinels.
func (d divided) cut() {
	for _, way := range d.ways[1:] {
		way.HoldBack(redistest.Both, true)
	}
}

// divide cuts the minority off from two Sentinels, who promote the replica. The former master
// goes on, and is named by the one Sentinel that is left. Nobody was asked by the minority
// after cut who answered.
func (d divided) divide(t *testing.T) (cut time.Time) {
	t.Helper()
	d.cut()
	cut = time.Now()
	locktest.Do(t, d.sentinels[1], "SENTINEL", "FAILOVER", "main")
	if next := d.next(t); next != d.replicas[0] {
		t.Fatalf("the new master is %s", next.Addr())
	}
	if address, err := d.sentinels[0].MasterAddr("main"); err != nil || address != d.master.Addr() {
		t.Fatalf("the Sentinel of the minority names %s, %v", address, err)
	}
	return cut
}

// The holder, the former master and one Sentinel of three are cut off from the rest, which has
// promoted a replica. The holder does not renew for as long as that lasts.
func TestHolderWithAMinorityOfTheSentinels(t *testing.T) {
	t.Parallel()
	for _, quarantine := range []bool{true, false} {
		t.Run(fmt.Sprint("quarantine ", quarantine), func(t *testing.T) {
			t.Parallel()
			d := newDivided(t, sentinelOptions)
			conf := locktest.Config(d.minority())
			conf.TTL, conf.NoQuarantine = 3*time.Second, !quarantine
			conf.MaxTTL = conf.TTL
			a, b := locktest.Open(t, conf), locktest.Open(t, locktest.Through(conf, d.url()))
			if quarantine {
				locktest.Vouch(t, a, "n0")
			}
			var first *redlatch.Lock
			locktest.Await(t, "A has the lock", func() (ok bool) {
				var err error
				first, err = a.TryLock(t.Context(), "x", redlatch.WithGuard(0))
				return err == nil
			})
			cut := d.divide(t)

			var second *redlatch.Lock
			locktest.Await(t, "B has the lock", func() bool {
				var err error
				if second, err = b.TryLock(t.Context(), "x", redlatch.WithGuard(0)); err != nil {
					return false
				}
				if quarantine && first.Err() == nil {
					t.Errorf("two holders: A's lock is valid for %v", time.Until(first.Until()))
				}
				return true
			})
			locktest.Await(t, "A is told why", func() bool {
				_, err := a.TryLock(t.Context(), "y")
				return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "2 of 3 Sentinels") && strings.Contains(err.Error(), "1 of 3 answered")
			})
			locktest.Await(t, "A's lock is lost", func() bool { return errors.Is(first.Err(), redlatch.ErrLost) })
			if late := first.Until().Sub(cut.Add(masterStands + conf.TTL)); late > 0 {
				t.Errorf("A renewed for %v too long", late)
			}
			if locktest.Value(t, d.replicas[0], "x") == "" && second.Err() == nil {
				t.Error("B's lock is not at the new master")
			}
			locktest.Unlock(t, second)

			// The way is back, and A finds the master of the majority.
			for _, way := range d.ways[1:] {
				way.HoldBack(redistest.Both, false)
			}
			var third *redlatch.Lock
			locktest.Await(t, "A has a lock again", func() (ok bool) {
				var err error
				third, err = a.TryLock(t.Context(), "x")
				return err == nil
			})
			if locktest.Value(t, d.replicas[0], "x") == "" && third.Err() == nil || third.Token() <= second.Token() {
				t.Errorf("A's lock is not at the new master, or has the token %d after %d", third.Token(), second.Token())
			}
			locktest.Unlock(t, third)
		})
	}
}

// A client is cut off with the former master just after a replica was promoted whose clock is behind, and is granted a lock
// there while that master stands. The tokens of the new master are larger if its clock is behind by no more than
// MaxTTL - 3 s, and smaller if it is behind by more than the quarantine. The clients' clocks are off as far as servers bear.
func TestTokensOfAMinority(t *testing.T) {
	t.Parallel()
	const maxTTL = 4 * time.Second
	for behind, grow := range map[time.Duration]bool{maxTTL - masterStands: true, time.Hour: false} {
		t.Run(behind.String(), func(t *testing.T) {
			t.Parallel()
			options := sentinelOptions
			options.ClockShim = true
			d := newDivided(t, options)
			if err := d.replicas[0].StepClock(-behind); err != nil {
				t.Fatal(err)
			}
			conf := locktest.WithMaxTTL(locktest.Config(d.minority()), maxTTL)
			conf.NoQuarantine = false
			a := locktest.OpenAt(t, conf, 2*time.Hour)
			locktest.Vouch(t, a, "n0")
			before := locktest.TryLock(t, a, "x", redlatch.WithoutRenewal())
			locktest.Unlock(t, before)
			first := before.Token()
			locktest.Do(t, d.sentinels[1], "SENTINEL", "FAILOVER", "main")
			d.next(t)
			d.cut()
			later := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.OpenAt(t, locktest.Through(conf, d.url()), -2*time.Hour), "x")

			locktest.Await(t, "A is told that the Sentinels are gone", func() bool {
				lock, err := a.TryLock(t.Context(), "x", redlatch.WithoutRenewal())
				if err == nil {
					first = max(first, lock.Token())
					_ = lock.Unlock(t.Context())
				}
				return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "1 of 3 answered")
			})
			second := <-later
			if second.Err != nil {
				t.Fatal(second.Err)
			}
			if grew := second.Lock.Token() > first; grew != grow {
				t.Errorf("the tokens are %d, then %d", first, second.Lock.Token())
			}
		})
	}
}

// One Sentinel of three says otherwise for long. The holder stays with the healthy master.
func TestHealthyMasterIsNotLeftOnTheWordOfOne(t *testing.T) {
	t.Parallel()
	w := newWatched(t, 0, sentinelOptions)
	other := redistest.New(t, sentinelOptions)
	conf := locktest.Config(w.url())
	conf.TTL = 3 * time.Second
	client := locktest.Open(t, conf)
	lock, err := locktest.AwaitAnswer(t, client, "x")
	if err != nil {
		t.Fatal(err)
	}
	locktest.Do(t, w.sentinels[0], "SENTINEL", "REMOVE", "main")
	locktest.Do(t, w.sentinels[0], "SENTINEL", "MONITOR", "main", "127.0.0.1", fmt.Sprint(other.Port()), "2")
	untilKept(t, func() error {
		if lock.Err() != nil {
			if lock, err = locktest.AwaitAnswer(t, client, "x"); err != nil {
				t.Fatal(err)
			}
		}
		start := lock.Until()
		locktest.Await(t, "renewed for two TTLs", func() bool { return lock.Err() != nil || lock.Until().Sub(start) > 2*conf.TTL })
		return lock.Err()
	})
	if lock.Err() == nil && locktest.Value(t, w.master, "x") == "" || locktest.Do(t, other, "DBSIZE") != int64(0) {
		t.Error("the lock is elsewhere")
	}
	locktest.Unlock(t, lock)
}

// All Sentinels hang: the master is given up, whose locks end, and is there again with them.
func TestAllSentinelsHang(t *testing.T) {
	t.Parallel()
	w := newWatched(t, 0, sentinelOptions)
	conf := locktest.Config(w.url())
	conf.TTL = 2 * time.Second
	client := locktest.Open(t, conf)
	lock, err := locktest.AwaitAnswer(t, client, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range w.sentinels {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	locktest.Await(t, "the lock is lost", func() bool { return errors.Is(lock.Err(), redlatch.ErrLost) })
	if _, err := client.TryLock(t.Context(), "y"); !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), "0 of 3 answered") {
		t.Errorf("got %v, want an error that says that no Sentinel answered", err)
	}
	for _, s := range w.sentinels[1:] {
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := locktest.AwaitAnswer(t, client, "y")
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, again)
	if err := w.sentinels[0].Resume(); err != nil {
		t.Fatal(err)
	}
}
