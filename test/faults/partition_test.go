package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The holder is cut off from a majority, and goes on renewing what it reaches.
// Its context ends, by its own clock, while every one of its keys is there
// still; and whoever acquires the lock next finds it ended.
func TestHolderCutOffFromAMajority(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			// The guard is the time for this test to look at the servers.
			const ttl, guard = locktest.TTL, locktest.TTL - 4*time.Second
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			c.TTL = ttl
			holder, other := locktest.Open(t, c), locktest.Open(t, locktest.Through(c, redistest.URLs(nodes)...))
			lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithGuard(guard))
			locktest.Await(t, "all nodes have the lock", func() bool {
				if lock.Err() != nil { // a busy machine has not renewed it in time
					lock = locktest.TryLock(t, holder, t.Name(), redlatch.WithGuard(guard))
				}
				return !slices.ContainsFunc(nodes, func(s *redistest.Server) bool { return locktest.Value(t, s, t.Name()) != hook.LeaseOf(lock).HolderID() })
			})
			for _, p := range proxies[:n/2+1] {
				p.BlackHole(redistest.Both, true)
			}
			select {
			case <-lock.Context().Done():
			case <-time.After(locktest.Patience):
				t.Fatal("the holder does not notice")
			}
			if left := time.Until(lock.Until()); left <= 0 {
				t.Errorf("it noticed %v after the end of the validity", -left)
			}
			for i, s := range nodes {
				if left := locktest.Remaining(t, s, t.Name()); left <= 0 && time.Now().Before(lock.Until()) {
					t.Errorf("the key on node %d is gone %v before the end of the validity", i, time.Until(lock.Until()))
				}
			}
			if cause := context.Cause(lock.Context()); !errors.Is(cause, redlatch.ErrLost) || !errors.Is(lock.Err(), redlatch.ErrLost) {
				t.Errorf("cause %v, error %v", cause, lock.Err())
			}

			for _, s := range nodes { // as when the TTL is over
				locktest.Do(t, s, "DEL", t.Name())
			}
			next, err := other.Lock(locktest.Within(t, locktest.Patience), t.Name())
			if err != nil {
				t.Fatal(err)
			}
			if next.Token() <= lock.Token() {
				t.Errorf("token %d follows %d", next.Token(), lock.Token())
			}
			// Nothing of the first holder's touches the second's, also when the
			// network is back.
			for _, p := range proxies {
				p.BlackHole(redistest.Both, false)
			}
			if err := lock.Extend(t.Context(), ttl); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("extend: %v", err)
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("unlock: %v", err)
			}
			locktest.Extend(t, next, ttl)
			locktest.Unlock(t, next)
		})
	}
}

// A client that tries all the time acquires the lock of a holder that was cut
// off: at that instant the holder's lock says that it is lost, whatever its
// timers did.
func TestNoTwoHoldersAcrossAPartition(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			c.TTL = 700 * time.Millisecond
			holder, other := locktest.Open(t, c), locktest.Open(t, locktest.Through(c, redistest.URLs(nodes)...))
			lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithGuard(0))
			proxies[round].BlackHole(redistest.Both, true)
			proxies[(round+1)%3].BlackHole(redistest.Replies, true)
			deadline := time.Now().Add(locktest.Patience)
			for {
				next, err := other.TryLock(t.Context(), t.Name(), redlatch.WithTTL(20*time.Second))
				if err == nil {
					if lock.Err() == nil || lock.Context().Err() == nil {
						t.Errorf("two holders: the first is valid until %v", time.Until(lock.Until()))
					}
					locktest.Unlock(t, next)
					return
				}
				if !errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrNoQuorum) || time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
		})
	}
}

// A minority is cut off: the lock is renewed for many TTLs, and those who were
// cut off have it again when they are back.
func TestMinorityCutOffIsHarmless(t *testing.T) {
	t.Parallel()
	locktest.UntilKept(t, 20, func(try int) error { return renewedByMost(t, fmt.Sprintf("%s/%d", t.Name(), try)) })
}

// renewedByMost has two of five nodes cut off for two TTLs, and returns why the lock was lost meanwhile.
func renewedByMost(t *testing.T, name string) error {
	nodes := locktest.Shared(t, 5)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.TTL = 3 * time.Second
	client := locktest.Open(t, c)
	lock := locktest.TryLock(t, client, name)
	for _, p := range proxies[:2] {
		p.BlackHole(redistest.Both, true)
	}
	start := lock.Until()
	locktest.Await(t, "renewed for two TTLs", func() bool { return lock.Err() != nil || lock.Until().Sub(start) > 2*c.TTL })
	if err := lock.Err(); err != nil {
		return err
	}
	for _, s := range nodes[:2] {
		if v := locktest.Value(t, s, name); v != "" {
			t.Errorf("a node that was cut off for two TTLs has %q", v)
		}
	}
	for _, p := range proxies {
		p.BlackHole(redistest.Both, false)
	}
	for _, s := range nodes[:2] {
		locktest.Await(t, "the nodes that were cut off are given the lock again", func() bool { return lock.Err() != nil || locktest.Value(t, s, name) != "" })
	}
	if err := lock.Err(); err != nil {
		return err
	}
	locktest.Unlock(t, lock)
	for _, s := range nodes {
		locktest.AwaitValue(t, s, name, "")
	}
	return nil
}
