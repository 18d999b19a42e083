package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Renewal keeps a lock for longer than its TTL, under one token, and stops with the
// release.
func TestRenewalKeepsTheLock(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		renewed(t, func(name string) error { return keptByRenewal(t, locktest.SharedOf(t, binary, 3), name) })
	})
}

// renewed has keep hold a lock, of another name each time, until it does not lose it.
func renewed(t *testing.T, keep func(name string) error) {
	t.Helper()
	locktest.UntilKept(t, 20, func(try int) error { return keep(fmt.Sprintf("%s/%d", t.Name(), try)) })
}

// keptByRenewal returns why the lock was lost.
func keptByRenewal(t *testing.T, nodes []*redistest.Server, name string) error {
	const ttl = 6 * time.Second
	proxies := redistest.Proxies(t, nodes)
	wires := []*locktest.Wire{locktest.Tap(proxies[0]), locktest.Tap(proxies[1]), locktest.Tap(proxies[2])}
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	lock := locktest.TryLock(t, client, name, redlatch.WithTTL(ttl))
	token, first := lock.Token(), lock.Until()
	locktest.Await(t, "held for another TTL", func() bool { return lock.Err() != nil || lock.Until().Sub(first) > ttl })
	if err := lock.Err(); err != nil {
		return err
	}
	if lock.Token() != token {
		t.Errorf("the token changed from %d to %d", token, lock.Token())
	}
	locktest.Unlock(t, lock)
	// Every third of a TTL and a tenth of jitter, or after a failed round
	// every twelfth: some 4, and no more than 30.
	for _, w := range wires {
		if n := w.Count("extend"); n > 30 {
			t.Errorf("%d extensions in two TTLs", n)
		}
	}
	for _, s := range nodes {
		locktest.AwaitValue(t, s, name, "")
	}
	return nil
}

// Renewal goes through what passes: a node that is late, a connection that
// breaks, a minute's worth of it.
func TestRenewalThroughTrouble(t *testing.T) {
	t.Parallel()
	renewed(t, func(name string) error { return keptThroughTrouble(t, name) })
}

// keptThroughTrouble returns why the lock was lost.
func keptThroughTrouble(t *testing.T, name string) error {
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	const ttl = 6 * time.Second
	lock := locktest.TryLock(t, client, name, redlatch.WithTTL(ttl))
	start := lock.Until()
	for round := 0; lock.Until().Sub(start) < ttl*4/3; round++ {
		before := lock.Until()
		p := proxies[round%3]
		switch round % 4 {
		case 0:
			p.Cut()
		case 1:
			p.HoldBack(redistest.Both, true)
		case 2:
			p.DropReplies(true)
		case 3:
			locktest.Do(t, nodes[round%3], "DEL", name)
		}
		locktest.Await(t, "renewed", func() bool { return lock.Err() != nil || lock.Until().After(before) })
		p.HoldBack(redistest.Both, false)
		p.DropReplies(false)
		if err := lock.Err(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	locktest.Unlock(t, lock)
	for _, s := range nodes {
		locktest.AwaitValue(t, s, name, "")
	}
	return nil
}

// A hold that ended because no node answered does not say that MaxHold ended it, however long it
// was held.
func TestCutOffIsNotMaxHold(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	const ttl = 3 * time.Second
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.NodeTimeout = 200 * time.Millisecond // renewals fail many times before it is lost
	client := locktest.Open(t, c)
	for _, options := range [][]redlatch.Option{nil, {redlatch.WithoutRenewal()}} {
		// A busy machine may have renewed it before it was cut off, or be late for the first renewal,
		// which is due before MaxHold. But not each time.
		for round := 0; ; round++ {
			for _, p := range proxies {
				p.BlackHole(redistest.Both, false)
			}
			name := t.Name() + "/cut"
			lock, err := client.Lock(locktest.Within(t, locktest.Patience), name, append(options, redlatch.WithTTL(ttl), redlatch.WithMaxHold(ttl/2))...)
			if err != nil {
				t.Fatal(err)
			}
			until := lock.Until()
			for _, p := range proxies {
				p.BlackHole(redistest.Both, true)
			}
			<-lock.Context().Done()
			err = context.Cause(lock.Context())
			if (!lock.Until().Equal(until) || errors.Is(err, redlatch.ErrMaxHold)) && round < 20 {
				continue
			}
			if !errors.Is(err, redlatch.ErrLost) || errors.Is(err, redlatch.ErrMaxHold) {
				t.Errorf("cut off: %v", err)
			}
			break
		}
	}
}

// Locks that are held together are renewed together: with fewer commands than locks, and each as if it
// were alone. What happened to one of them is nothing to the others.
func TestManyAreRenewedTogether(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		const many, callers, ttl = 200, 20, 30 * time.Second // for a busy machine to renew them
		nodes := locktest.SharedOf(t, binary, 3)
		proxies := redistest.Proxies(t, nodes)
		wires := locktest.Taps(proxies)
		events := new(locktest.Events)
		c := locktest.Config(locktest.ProxyURLs(proxies)...)
		c.Observer = events
		client := locktest.Open(t, c)
		locks, ctx := make([]*redlatch.Lock, many), locktest.Within(t, 2*locktest.Patience)
		each := func(f func(i int)) { // so many at a time: what was taken over a long time is due over a long time
			var all sync.WaitGroup
			for k := range callers {
				all.Go(func() {
					for i := k; i < many; i += callers {
						f(i)
					}
				})
			}
			all.Wait()
		}
		each(func(i int) {
			lock, err := client.Lock(ctx, fmt.Sprintf("%s-%d", t.Name(), i), redlatch.WithTTL(ttl))
			if err != nil {
				t.Error(err)
			}
			locks[i] = lock
		})
		if t.Failed() {
			return
		}
		// The last has gone from a majority, and a stranger has another on one node.
		gone, elsewhere := locks[many-1], locks[many-2]
		locktest.Do(t, nodes[2], "SET", elsewhere.Name(), "a stranger", "PX", "60000")
		first := make([]time.Time, many)
		for i, l := range locks {
			first[i] = l.Until()
		}
		locktest.Await(t, "all renewed, and one lost", func() bool {
			if gone.Err() == nil { // a renewal between the two would give back the first
				locktest.Do(t, nodes[0], "DEL", gone.Name())
				locktest.Do(t, nodes[1], "DEL", gone.Name())
			}
			for i, l := range locks {
				if l == gone {
					continue
				}
				if err := l.Err(); err != nil {
					t.Fatalf("%s: %v", l.Name(), err)
				}
				if !l.Until().After(first[i]) {
					return false
				}
			}
			return errors.Is(gone.Err(), redlatch.ErrLost)
		})
		locktest.AwaitValue(t, nodes[2], elsewhere.Name(), "a stranger")
		for _, w := range wires {
			commands := w.Count("extend-batch") + w.Count("extend")
			renewals := len(locktest.EventsOf[redlatch.LockExtended](events)) + len(locktest.EventsOf[redlatch.LockNotExtended](events))
			if commands > renewals*3/4 {
				t.Errorf("%d renewals by %d commands", renewals, commands)
			}
		}
		each(func(i int) {
			if locks[i] != gone {
				locktest.Unlock(t, locks[i])
			}
		})
		for _, l := range locks {
			if l != elsewhere {
				locktest.AwaitValue(t, nodes[2], l.Name(), "")
			}
		}
	})
}
