package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/zookeeper"
)

// A holder's process dies. A waiter has the lock after a TTL, and one that makes single tries, each
// in a process that knows nothing of the others, when the session has ended.
func TestHolderCrashes(t *testing.T) {
	t.Parallel()
	e := common(t)
	for name, waits := range map[string]bool{"a waiter": true, "single tries": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := rootOf(t)
			holder := startChild(t, e, root)
			ensemble := zookeeper.Ensemble{Servers: e.addrs(), Root: root}
			var next *redlatch.Lock
			if waits {
				out := lockIn(t, open(t, config, ensemble), "name")
				holder.signal(t, syscall.SIGKILL)
				got := <-out
				if got.err != nil {
					t.Fatal(got.err)
				}
				next = got.lock
			} else {
				holder.signal(t, syscall.SIGKILL)
				await(t, "a single try has it", func() bool {
					client := open(t, config, ensemble)
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
	root := rootOf(t)
	holder := startChild(t, e, root)
	out := lockIn(t, open(t, config, zookeeper.Ensemble{Servers: e.addrs(), Root: root}), "name")
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

// The first in the queue dies: those behind it do not wait until its session has ended.
func TestFirstWaiterCrashes(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.addrs(), Root: rootOf(t)}
	holder := open(t, config, ensemble)
	held := lock(t, holder, "name")
	proxy := redistest.NewProxy(t, e.servers[0].addr())
	c := config
	c.TTL = 10 * time.Second
	first := open(t, c, zookeeper.Ensemble{Servers: []string{proxy.Addr()}, Root: ensemble.Root})
	lockIn(t, first, "name")
	second := lockIn(t, open(t, config, ensemble), "name")
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
	ensemble := zookeeper.Ensemble{Servers: []string{proxy.Addr()}, Root: rootOf(t)}
	client := open(t, config, ensemble)
	ensemble.Servers = e.addrs()
	other := open(t, config, ensemble)
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

// The reply to a transaction is lost, which is executed.
func TestLostReplyOfAGrant(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.addrs(), Root: rootOf(t)}
	other := open(t, config, ensemble)
	granted := 0
	for i := range 6 {
		name := fmt.Sprint("name", i)
		unlock(t, lock(t, other, name))
		wire := new(wire)
		ensemble.Dial = wire.dial
		client := open(t, config, ensemble)
		unlock(t, lock(t, client, "before"))
		wire.loseMulti.Store(true)
		l, err := client.TryLock(t.Context(), name)
		if wire.loseMulti.Load() {
			t.Fatal("no transaction was sent")
		}
		if err == nil {
			granted++
			if _, err := other.TryLock(t.Context(), name); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("it is held, and another: %v", err)
			}
			if l.Token() < uint64(time.Now().UnixMicro()) {
				t.Errorf("the token %d", l.Token())
			}
			wire.loseMulti.Store(true)
			if err := l.Unlock(t.Context()); errors.Is(err, redlatch.ErrLost) {
				t.Error("the reply to the release is lost, not the lock: ", err)
			}
		}
		client.Close()
	}
	if granted == 0 {
		t.Error("none was found by its holder id")
	}
}

// patient is for holders who are to keep their lock while servers change: an election takes seconds.
var patient = redlatch.Config{TTL: 20 * time.Second}

// longSessions is the setting that it needs.
const longSessions = "maxSessionTimeout=60000"

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

// The server that a client is connected to dies, or stands still: the session goes on at another,
// and the lock is kept.
func TestSessionMoves(t *testing.T) {
	e := own(t, 3, longSessions)
	for name, harm := range map[string]func(*server){
		"follower killed": func(s *server) { s.kill() },
		"follower hung":   func(s *server) { s.signal(t, syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			leader, followers := e.leader(t)
			proxy := redistest.NewProxy(t, followers[0].addr())
			ensemble := zookeeper.Ensemble{Servers: []string{proxy.Addr()}, Root: rootOf(t)}
			client := open(t, patient, ensemble)
			held := lock(t, client, "name")
			proxy.Retarget(leader.addr()) // for the next connection
			harm(followers[0])
			extend(t, held)
			unlock(t, held)
			if followers[0].running {
				followers[0].signal(t, syscall.SIGCONT)
			} else {
				followers[0].start(t)
			}
			e.awaitServing()
		})
	}
}

// The leader dies. The holder keeps its lock, and whoever waits has it next.
func TestLeaderDies(t *testing.T) {
	e := own(t, 3, longSessions)
	ensemble := zookeeper.Ensemble{Servers: e.addrs(), Root: rootOf(t)}
	holder, other := open(t, patient, ensemble), open(t, patient, ensemble)
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
	e := own(t, 3)
	ensemble := zookeeper.Ensemble{Servers: e.addrs(), Root: rootOf(t)}
	holder, other := open(t, config, ensemble), open(t, config, ensemble)
	held := lock(t, holder, "name", redlatch.WithoutRenewal()) // else it may outlast the restart
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

// A follower is cut off from the others with the holder on it, who reaches no other: the holder
// knows before the next one has the lock, though the follower goes on answering it.
func TestFollowerIsCutOff(t *testing.T) {
	e := own(t, 3)
	for round := range 3 {
		root := rootOf(t)
		leader, followers := e.leader(t)
		c := config
		holder := open(t, c, zookeeper.Ensemble{Servers: []string{followers[0].addr()}, Root: root})
		other := open(t, c, zookeeper.Ensemble{Servers: []string{leader.addr(), followers[1].addr()}, Root: root})
		held := lock(t, holder, "name")
		out := lockIn(t, other, "name")
		lost := make(chan time.Time, 1)
		ctx := held.Context()
		go func() {
			<-ctx.Done()
			lost <- time.Now()
		}()
		start := time.Now()
		followers[0].part(true)
		for _, s := range e.servers {
			if link := s.links[followers[0].id]; link != nil {
				link.BlackHole(redistest.Both, true)
			}
		}
		got := <-out
		if got.err != nil {
			t.Fatal(got.err)
		}
		knew := <-lost
		t.Logf("round %d: the holder knew after %v, the next had it after %v", round, knew.Sub(start), got.at.Sub(start))
		if knew.After(got.at) {
			t.Errorf("the next had it %v before the holder knew", knew.Sub(got.at))
		}
		if got.lock.Token() <= held.Token() {
			t.Errorf("the token %d after %d", got.lock.Token(), held.Token())
		}
		unlock(t, got.lock)
		followers[0].part(false)
		for _, s := range e.servers {
			if link := s.links[followers[0].id]; link != nil {
				link.BlackHole(redistest.Both, false)
			}
		}
		holder.Close()
		e.awaitServing()
	}
}
