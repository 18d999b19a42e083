//go:build unix

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// HolderCrashes tests that, when a holder's process dies, a waiter has the lock after a TTL, and one that makes single tries, each
// in a process that knows nothing of the others, when the session has ended.
func (e Engine) HolderCrashes(t *testing.T) {
	t.Parallel()
	servers := e.Common(t)
	for name, waits := range map[string]bool{"a waiter": true, "single tries": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := Root(t)
			holder := e.startChild(t, servers, root)
			var next *redlatch.Lock
			if waits {
				out := LockIn(t, e.open(t, Config, servers, root), "name")
				holder.signal(t, syscall.SIGKILL)
				got := <-out
				if got.Err != nil {
					t.Fatal(got.Err)
				}
				next = got.Lock
			} else {
				holder.signal(t, syscall.SIGKILL)
				next = e.awaitTry(t, servers, root)
			}
			if next.Token() <= holder.token {
				t.Errorf("the token %d after %d", next.Token(), holder.token)
			}
			Unlock(t, next)
		})
	}
}

// HolderIsPaused has a holder's process stand still for longer than its TTL: another has the lock meanwhile under a
// larger token, and the first finds it lost when it goes on.
func (e Engine) HolderIsPaused(t *testing.T) {
	t.Parallel()
	servers := e.Common(t)
	root := Root(t)
	holder := e.startChild(t, servers, root)
	out := LockIn(t, e.open(t, Patient, servers, root), "name")
	holder.signal(t, syscall.SIGSTOP)
	got := <-out
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	holder.signal(t, syscall.SIGCONT)
	var at int64
	if _, err := fmt.Sscanf(holder.line(t), "lost %d", &at); err != nil {
		t.Fatal(err)
	}
	if got.Lock.Token() <= holder.token {
		t.Errorf("the token %d after %d", got.Lock.Token(), holder.token)
	}
	if err := got.Lock.Err(); err != nil {
		t.Error("the second: ", err)
	}
	Unlock(t, got.Lock)
}

// FirstWaiterCrashes has the first in the queue die: those behind it do not wait until its session has ended.
func (e Engine) FirstWaiterCrashes(t *testing.T) {
	t.Parallel()
	servers := e.Common(t)
	root := Root(t)
	holder := e.open(t, Patient, servers, root)
	held := Lock(t, holder, "name")
	proxy := redistest.NewProxy(t, servers[0])
	c := Config
	c.TTL = 20 * time.Second
	first := e.open(t, c, []string{proxy.Addr()}, root)
	LockIn(t, first, "name")
	second := LockIn(t, e.open(t, Patient, servers, root), "name")
	proxy.BlackHole(redistest.Both, true)
	start := time.Now()
	Unlock(t, held)
	hasSince(t, second, start, 2*c.TTL)
	proxy.BlackHole(redistest.Both, false)
}

// HolderAndWaiterCrash has the holder and the first in the queue die at once: those behind them do not wait until the
// sessions have ended.
func (e Engine) HolderAndWaiterCrash(t *testing.T) {
	t.Parallel()
	servers := e.Common(t)
	root := Root(t)
	proxy := redistest.NewProxy(t, servers[0])
	c := Config
	c.TTL, c.MaxTTL = 3*time.Second, 20*time.Second
	Lock(t, e.open(t, c, []string{proxy.Addr()}, root), "name")
	LockIn(t, e.open(t, c, []string{proxy.Addr()}, root), "name")
	second := LockIn(t, e.open(t, c, servers, root), "name")
	proxy.BlackHole(redistest.Both, true)
	start := time.Now()
	hasSince(t, second, start, 2*c.MaxTTL)
	proxy.BlackHole(redistest.Both, false)
}

// hasSince waits for a lock, and releases it. It must be had well before sessions end that last for so long from start.
func hasSince(t *testing.T, out <-chan Outcome, start time.Time, sessions time.Duration) {
	t.Helper()
	got := <-out
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if after := got.At.Sub(start); after > sessions*3/4 {
		t.Errorf("the second has it after %v, and the sessions last for %v", after, sessions)
	}
	Unlock(t, got.Lock)
}

// LostReplies has replies be lost. What was granted is found by its holder id, and what was not is not left.
func (e Engine) LostReplies(t *testing.T) {
	t.Parallel()
	servers := e.Common(t)
	proxy := redistest.NewProxy(t, servers[0])
	root := Root(t)
	client := e.open(t, Patient, []string{proxy.Addr()}, root)
	other := e.open(t, Patient, servers, root)
	Unlock(t, Lock(t, client, "before"))
	readBack := 0
	for i := range 10 {
		name := fmt.Sprint("name", i)
		Unlock(t, Lock(t, other, name)) // its node is there
		proxy.HoldBack(redistest.Replies, true)
		out := make(chan Outcome, 1)
		go func() {
			l, err := client.TryLock(t.Context(), name)
			out <- Outcome{Lock: l, Err: err}
		}()
		time.Sleep(50 * time.Millisecond) // the request for what is there is answered no more
		proxy.HoldBack(redistest.Replies, false)
		proxy.Cut()
		got := <-out
		if got.Err == nil {
			readBack++
			if _, err := locktest.TryInTime(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("it is held, and another: %v", err)
			}
			Unlock(t, got.Lock)
		}
		Await(t, "it is free", func() bool {
			l, err := other.TryLock(t.Context(), name)
			if err == nil {
				Unlock(t, l)
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
	Await(t, "it is free", func() bool {
		l, err := other.TryLock(t.Context(), "silent")
		if err == nil {
			Unlock(t, l)
		}
		return err == nil
	})
}

// LeaderDies kills the leader. The holder keeps its lock, and who waits has it next.
func (e Engine) LeaderDies(t *testing.T) {
	own, root := e.Own(t), Root(t)
	holder, other := e.open(t, Patient, own.Addrs(), root), e.open(t, Patient, own.Addrs(), root)
	held := Lock(t, holder, "name")
	out := LockIn(t, other, "name")
	own.KillLeader()
	Extend(t, held)
	Unlock(t, held)
	got := <-out
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if got.Lock.Token() <= held.Token() {
		t.Errorf("the token %d after %d", got.Lock.Token(), held.Token())
	}
	got.Lock.Unlock(t.Context())
}

// AllRestart kills all servers, and starts them again, of which clients tell.
func (e Engine) AllRestart(t *testing.T) {
	own, root := e.Own(t), Root(t)
	reach := new(reachable)
	observed := Config
	observed.Observer = reach
	holder, other := e.open(t, Config, own.Addrs(), root), e.open(t, observed, own.Addrs(), root)
	held := Lock(t, holder, "name", redlatch.WithoutRenewal()) // else it may outlast the restart
	own.KillAll()
	Await(t, "a client tells that the servers cannot be reached", func() bool {
		if _, err := other.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Fatalf("without servers: %v", err)
		}
		return reach.lost.Load() > 0
	})
	own.StartAll(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*Patience)
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
	Await(t, "a client tells that the servers can be reached again", func() bool {
		if l, err := other.TryLock(t.Context(), "name"); err == nil {
			l.Unlock(t.Context())
		}
		return reach.found.Load() > 0
	})
}

// reachable counts how often servers were lost and found.
type reachable struct{ lost, found atomic.Int32 }

func (r *reachable) Observe(_ context.Context, event redlatch.Event) {
	switch event.(type) {
	case redlatch.NodeUnreachable:
		r.lost.Add(1)
	case redlatch.NodeReachable:
		r.found.Add(1)
	}
}
