package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A holder's process dies. A waiter has the lock after a TTL, and one that makes single tries, each
// in a process that knows nothing of the others, when the etcd lease has ended.
func TestHolderCrashes(t *testing.T) {
	t.Parallel()
	e := common(t)
	for name, waits := range map[string]bool{"a waiter": true, "single tries": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := prefixOf(t)
			holder := startChild(t, e, prefix)
			where := etcd.Cluster{Endpoints: e.addrs(), Prefix: prefix}
			var next *redlatch.Lock
			if waits {
				out := lockIn(t, open(t, config, where), "name")
				holder.signal(t, syscall.SIGKILL)
				got := <-out
				if got.err != nil {
					t.Fatal(got.err)
				}
				next = got.lock
			} else {
				holder.signal(t, syscall.SIGKILL)
				await(t, "a single try has it", func() bool {
					client := open(t, config, where)
					l, err := client.TryLock(t.Context(), "name")
					if errors.Is(err, redlatch.ErrHeld) {
						client.Close()
						return false
					}
					if err != nil {
						t.Fatal(err)
					}
					next = l
					return true
				})
			}
			if next.Token() <= holder.token {
				t.Errorf("the token %d after %d", next.Token(), holder.token)
			}
			unlock(t, next)
		})
	}
}

// A holder's process stands still for longer than its TTL: another has the lock meanwhile under a
// larger token, and the first finds it lost when it goes on.
func TestHolderIsPaused(t *testing.T) {
	t.Parallel()
	e := common(t)
	prefix := prefixOf(t)
	holder := startChild(t, e, prefix)
	out := lockIn(t, open(t, config, etcd.Cluster{Endpoints: e.addrs(), Prefix: prefix}), "name")
	holder.signal(t, syscall.SIGSTOP)
	got := <-out
	if got.err != nil {
		t.Fatal(got.err)
	}
	holder.signal(t, syscall.SIGCONT)
	var at int64
	if _, err := fmt.Sscanf(holder.line(t), "lost %d", &at); err != nil {
		t.Fatal(err)
	}
	if got.lock.Token() <= holder.token {
		t.Errorf("the token %d after %d", got.lock.Token(), holder.token)
	}
	if err := got.lock.Err(); err != nil {
		t.Error("the second: ", err)
	}
	unlock(t, got.lock)
}

// The first in the queue dies: those behind it do not wait until its etcd lease has ended.
func TestFirstWaiterCrashes(t *testing.T) {
	t.Parallel()
	e := common(t)
	where := etcd.Cluster{Endpoints: e.addrs(), Prefix: prefixOf(t)}
	holder := open(t, config, where)
	held := lock(t, holder, "name")
	proxy := redistest.NewProxy(t, e.servers[0].addr())
	c := config
	c.TTL = 10 * time.Second
	first := open(t, c, etcd.Cluster{Endpoints: []string{proxy.Addr()}, Prefix: where.Prefix})
	lockIn(t, first, "name")
	second := lockIn(t, open(t, config, where), "name")
	proxy.BlackHole(redistest.Both, true)
	start := time.Now()
	unlock(t, held)
	got := <-second
	if got.err != nil {
		t.Fatal(got.err)
	}
	if after := got.at.Sub(start); after > 3*c.TTL/2 {
		t.Errorf("the second has it after %v, and the first's session lasts for %v", after, 2*c.TTL)
	}
	unlock(t, got.lock)
	proxy.BlackHole(redistest.Both, false)
}

// Replies are lost. What was granted is found by its holder id, and what was not is not left.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	e := common(t)
	proxy := redistest.NewProxy(t, e.servers[0].addr())
	where := etcd.Cluster{Endpoints: []string{proxy.Addr()}, Prefix: prefixOf(t)}
	client := open(t, config, where)
	where.Endpoints = e.addrs()
	other := open(t, config, where)
	unlock(t, lock(t, client, "before"))
	readBack := 0
	for i := range 10 {
		name := fmt.Sprint("name", i)
		unlock(t, lock(t, other, name)) // its node is there
		proxy.HoldBack(redistest.Replies, true)
		out := make(chan outcome, 1)
		go func() {
			l, err := client.TryLock(t.Context(), name)
			out <- outcome{lock: l, err: err}
		}()
		time.Sleep(50 * time.Millisecond) // the request for what is there is answered no more
		proxy.HoldBack(redistest.Replies, false)
		proxy.Cut()
		got := <-out
		if got.err == nil {
			readBack++
			if _, err := other.TryLock(t.Context(), name); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("it is held, and another: %v", err)
			}
			unlock(t, got.lock)
		}
		await(t, "it is free", func() bool {
			l, err := other.TryLock(t.Context(), name)
			if err == nil {
				unlock(t, l)
			}
			return err == nil
		})
	}
	if readBack == 0 {
		t.Error("no lock was had whose connection broke meanwhile")
	}

	// No reply at all, for longer than the try takes.
	proxy.DropReplies(true)
	if _, err := client.TryLock(t.Context(), "silent"); !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("without a reply: %v", err)
	}
	proxy.DropReplies(false)
	await(t, "it is free", func() bool {
		l, err := other.TryLock(t.Context(), "silent")
		if err == nil {
			unlock(t, l)
		}
		return err == nil
	})
}

// patient is for holders who are to keep their lock while servers change: an election takes seconds.
var patient = redlatch.Config{TTL: 20 * time.Second}

// extend tries until a lock is extended, which it must be before it is lost.
func extend(t *testing.T, held *redlatch.Lock) {
	t.Helper()
	await(t, "it is extended", func() bool {
		err := held.Extend(t.Context(), patient.TTL)
		if errors.Is(err, redlatch.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// The leader dies. The holder keeps its lock, and whoever waits has it next.
func TestLeaderDies(t *testing.T) {
	e := own(t)
	where := etcd.Cluster{Endpoints: e.addrs(), Prefix: prefixOf(t)}
	holder, other := open(t, patient, where), open(t, patient, where)
	held := lock(t, holder, "name")
	out := lockIn(t, other, "name")
	leader, _ := e.leader(t)
	leader.kill()
	extend(t, held)
	unlock(t, held)
	got := <-out
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.lock.Token() <= held.Token() {
		t.Errorf("the token %d after %d", got.lock.Token(), held.Token())
	}
	got.lock.Unlock(t.Context())
}

// All servers are killed, and start again.
func TestAllRestart(t *testing.T) {
	e := own(t)
	where := etcd.Cluster{Endpoints: e.addrs(), Prefix: prefixOf(t)}
	holder, other := open(t, config, where), open(t, config, where)
	held := lock(t, holder, "name", redlatch.WithoutRenewal()) // or it would be kept, as they are quick
	for _, s := range e.servers {
		s.kill()
	}
	if _, err := other.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("without servers: %v", err)
	}
	for _, s := range e.servers {
		s.start(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	next, err := other.Lock(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	if held.Err() == nil {
		t.Error("the first holder does not know")
	}
	if next.Token() <= held.Token() {
		t.Errorf("the token %d after %d", next.Token(), held.Token())
	}
	next.Unlock(t.Context())
}
