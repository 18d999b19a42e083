package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// kindOfLock is a way to lock, and the keys that say so on a node.
type kindOfLock struct {
	name string
	keys []string
	lock func(context.Context, *redlatch.Client) (*redlatch.Lock, error)
}

var kindsOfLocks = []kindOfLock{
	{"TryLock", []string{"try"}, func(ctx context.Context, c *redlatch.Client) (*redlatch.Lock, error) { return c.TryLock(ctx, "try") }},
	{"Lock", []string{"lock"}, func(ctx context.Context, c *redlatch.Client) (*redlatch.Lock, error) { return c.Lock(ctx, "lock") }},
	{"RLock", []string{"read", "redlatch:{read}:readers:read"}, func(ctx context.Context, c *redlatch.Client) (*redlatch.Lock, error) { return c.RLock(ctx, "read") }},
	{"LockAll", []string{"a", "b"}, func(ctx context.Context, c *redlatch.Client) (*redlatch.Lock, error) {
		return c.LockAll(ctx, []string{"a", "b"})
	}},
	{"Acquire", []string{locktest.SlotKey("permits", 0)}, func(ctx context.Context, c *redlatch.Client) (*redlatch.Lock, error) {
		return c.Acquire(ctx, "permits", 1)
	}},
}

// on reports whether the server has all keys of the lock, and whether it has none.
func (k kindOfLock) on(t *testing.T, s *redistest.Server) (all, none bool) {
	t.Helper()
	found := 0
	for _, key := range k.keys {
		found += int(locktest.Do(t, s, "EXISTS", key).(int64))
	}
	return found == len(k.keys), found == 0
}

// A lock of each kind is held when the replica has it, also where a node lost its keys and was given them back. Where no
// acknowledgement comes it is not extended and not acquired, and nothing is left: neither when the caller's ctx ends nor
// when the client is closed meanwhile.
func TestEachKindOfLockIsAcknowledged(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, kind := range kindsOfLocks {
			t.Run(kind.name, func(t *testing.T) {
				t.Parallel()
				testKindIsAcknowledged(t, binary, kind)
			})
		}
	})
}

func testKindIsAcknowledged(t *testing.T, binary string, kind kindOfLock) {
	var nodes []replicated
	var urls []string
	for range 2 { // a quorum is both
		r := newReplicated(t, redistest.Options{Binary: binary})
		nodes, urls = append(nodes, r), append(urls, r.address.URL())
	}
	third := redistest.New(t, redistest.Options{Binary: binary}) // which has no replica, so its votes never count
	conf := locktest.Through(nodes[0].config(), append(urls, third.URL())...)
	conf.Replicas.Count = 1
	conf.TTL, conf.MaxTTL = 2*locktest.Patience, 2*locktest.Patience
	client := locktest.Open(t, conf)

	var lock *redlatch.Lock
	locktest.Await(t, "it is locked", func() (ok bool) {
		var err error
		lock, err = kind.lock(locktest.Within(t, locktest.Patience), client)
		return err == nil
	})
	for i, r := range nodes {
		if all, _ := kind.on(t, r.replica); !all {
			t.Errorf("it is held, and the replica of node %d does not have it", i)
		}
	}
	// The keys are back on the third, which votes and does not count.
	locktest.Do(t, third, "DEL", kind.keys[0])
	locktest.Await(t, "the node is repaired", func() bool {
		_ = lock.Extend(locktest.Within(t, locktest.Patience), conf.TTL)
		all, _ := kind.on(t, third)
		return all
	})

	nodes[0].stream.HoldBack(redistest.Replies, true)
	awaitNotReplicated(t, "0 of 1 replicas", func() error { return lock.Extend(t.Context(), conf.TTL) })
	locktest.Unlock(t, lock)
	nothingIsLeft := func() {
		t.Helper()
		locktest.Await(t, "nothing is left", func() bool {
			for _, s := range []*redistest.Server{nodes[0].master, nodes[1].master, third} {
				if _, none := kind.on(t, s); !none {
					return false
				}
			}
			return true
		})
	}
	nothingIsLeft()

	// waiting begins a call, and returns when one of its votes waits for the replica.
	waiting := func(ctx context.Context) <-chan error {
		t.Helper()
		waits := nodes[0].address.Stats().Seen["WAIT"]
		ended := make(chan error, 1)
		go func() {
			_, err := kind.lock(ctx, client)
			ended <- err
		}()
		if err := nodes[0].address.AwaitCommand(locktest.Within(t, locktest.Patience), "WAIT", waits+1); err != nil {
			t.Fatal(err)
		}
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := waiting(ctx)
	cancel()
	if err := <-ended; err == nil || kind.name != "TryLock" && !errors.Is(err, context.Canceled) {
		t.Errorf("the ctx ended, and the call returned %v", err)
	}
	nothingIsLeft()
	ended = waiting(t.Context())
	if err := client.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-ended; err == nil || kind.name != "TryLock" && !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("the client was closed, and the call returned %v", err)
	}
	nothingIsLeft()
}

// A replica that was gone comes back while a vote waits for it, and acknowledges it.
func TestReplicaReturnsWhileAVoteWaits(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		r := newReplicated(t, redistest.Options{Binary: binary})
		conf := r.config()
		conf.Replicas.Count = 1
		client := locktest.Open(t, conf)
		locktest.Unlock(t, locktest.TryLock(t, client, "known"))
		if err := r.stream.Refuse(true); err != nil {
			t.Fatal(err)
		}
		r.stream.Cut()
		awaitNotReplicated(t, "0 of 1 replicas", func() error { return locktest.ErrorOf(client.TryLock(t.Context(), "x")) })
		gone, waits := locktest.WhenWaiting(nil)
		waiting := locktest.LockIn(locktest.Within(t, locktest.Patience), client, "x", gone)
		<-waits
		if err := r.stream.Refuse(false); err != nil {
			t.Fatal(err)
		}
		o := <-waiting
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if v := locktest.Value(t, r.replica, "x"); v == "" || v != locktest.Value(t, r.master, "x") {
			t.Errorf("held, and the replica has %q", v)
		}
		locktest.Unlock(t, o.Lock)
	})
}

// The master hangs while a vote waits for its replicas, one of which the Sentinels promote. The call that waits gets the
// lock at the new master, acknowledged there, and in time if a quarantine is due.
func TestSentinelFailoverWhileAVoteWaits(t *testing.T) {
	t.Parallel()
	for _, quarantine := range []bool{true, false} {
		t.Run(fmt.Sprint("quarantine ", quarantine), func(t *testing.T) {
			t.Parallel()
			w := newWatched(t, 2, sentinelOptions)
			conf := locktest.Config(w.url())
			conf.NodeTimeout, conf.Replicas.Timeout = 400*time.Millisecond, 300*time.Millisecond
			conf.TTL, conf.MaxTTL, conf.NoQuarantine = 2*time.Second, 2*time.Second, !quarantine
			conf.Replicas.Count = 1
			client := locktest.Open(t, conf)
			if quarantine {
				locktest.Vouch(t, client, "n0")
			}
			locktest.Unlock(t, locktest.TryLock(t, client, "known"))
			for _, s := range w.replicas {
				if err := s.Pause(); err != nil {
					t.Fatal(err)
				}
			}
			unacknowledged := make(chan struct{})
			told := false
			waiting := locktest.LockIn(locktest.Within(t, 2*locktest.Patience), client, "x", redlatch.WithoutRenewal(), redlatch.WithWaitReport(func(err error) {
				if !told && strings.Contains(err.Error(), "acknowledge") {
					told = true
					close(unacknowledged)
				}
			}))
			<-unacknowledged
			if err := w.master.Pause(); err != nil {
				t.Fatal(err)
			}
			for _, s := range w.replicas {
				if err := s.Resume(); err != nil {
					t.Fatal(err)
				}
			}
			next := w.next(t)
			o := <-waiting
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if v := locktest.Value(t, next, "x"); v == "" && o.Lock.Err() == nil {
				t.Error("it is held, and the new master does not have it")
			}
		})
	}
}

// A release waits for no replica. Where the one that lacks it is promoted, the lock is there again until its TTL ends, which
// is on the safe side.
func TestReleaseWaitsForNoReplica(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, redistest.Options{})
	conf := r.config()
	conf.Replicas.Count = 1
	holder := locktest.Open(t, conf)
	conf.Replicas.Count = 0 // the promoted one has no replica to acknowledge
	other := locktest.Open(t, conf)
	lock := locktest.TryLock(t, holder, "x")
	r.stream.HoldBack(redistest.Replies, true)
	locktest.Unlock(t, lock)
	locktest.AwaitValue(t, r.master, "x", "")
	r.failOver(t)
	if _, err := locktest.AwaitAnswer(t, other, "x"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("the lock that was released and is back: %v, want ErrHeld", err)
	}
}
