package zookeeper_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/zookeeper"
)

func TestHolderCrashes(t *testing.T)        { reconnects(t); engine.HolderCrashes(t) }
func TestHolderIsPaused(t *testing.T)       { reconnects(t); engine.HolderIsPaused(t) }
func TestFirstWaiterCrashes(t *testing.T)   { reconnects(t); engine.FirstWaiterCrashes(t) }
func TestHolderAndWaiterCrash(t *testing.T) { reconnects(t); engine.HolderAndWaiterCrash(t) }
func TestLostReplies(t *testing.T)          { reconnects(t); engine.LostReplies(t) }
func TestLeaderDies(t *testing.T)           { reconnects(t); engine.LeaderDies(t) }
func TestAllRestart(t *testing.T)           { reconnects(t); engine.AllRestart(t) }
func TestServerTrouble(t *testing.T)        { reconnects(t); engine.ServerTrouble(t, own(t, longSessions)) }

// The reply to a transaction is lost, which is executed.
func TestLostReplyOfAGrant(t *testing.T) {
	reconnects(t)
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	other := open(t, enginetest.Config, ensemble)
	granted := 0
	for i := range 6 {
		name := fmt.Sprint("name", i)
		enginetest.Unlock(t, enginetest.Lock(t, other, name))
		wire := new(wire)
		ensemble.Dial = wire.dial
		client := open(t, enginetest.Config, ensemble)
		enginetest.Unlock(t, enginetest.Lock(t, client, "before"))
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

// The connection breaks when the client makes it again and sends its user: it is made once more.
func TestConnectionBreaksWhereTheUserIsSent(t *testing.T) {
	reconnects(t)
	t.Parallel()
	wire := new(wire)
	ensemble := zookeeper.Ensemble{Servers: common(t).Addrs(), Root: enginetest.Root(t), User: "user", Password: "password", Dial: wire.dial}
	client := open(t, enginetest.Patient, ensemble)
	enginetest.Unlock(t, enginetest.Lock(t, client, "before"))
	wire.failAuth.Store(true)
	wire.loseMulti.Store(true)
	enginetest.Unlock(t, enginetest.Lock(t, client, "after"))
	if wire.failAuth.Load() {
		t.Error("no user was sent")
	}
}

// The server that a client is connected to dies, or stands still: the session goes on at another,
// and the lock is kept.
func TestSessionMoves(t *testing.T) {
	reconnects(t)
	e := own(t, longSessions)
	for name, harm := range map[string]func(*ensembletest.ZooKeeperServer){
		"follower killed": func(s *ensembletest.ZooKeeperServer) { s.Kill() },
		"follower hung":   func(s *ensembletest.ZooKeeperServer) { s.Signal(t, syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			leader, followers := e.Leader()
			proxy := redistest.NewProxy(t, followers[0].Addr())
			ensemble := zookeeper.Ensemble{Servers: []string{proxy.Addr()}, Root: enginetest.Root(t)}
			client := open(t, enginetest.Patient, ensemble)
			held := enginetest.Lock(t, client, "name")
			proxy.Retarget(leader.Addr()) // for the next connection
			harm(followers[0])
			enginetest.Extend(t, held)
			enginetest.Unlock(t, held)
			if followers[0].Running() {
				followers[0].Signal(t, syscall.SIGCONT)
			} else {
				followers[0].Start(t)
			}
			e.AwaitServing()
		})
	}
}

// A follower is cut off from the others with the holder on it, who reaches no other: the holder
// knows before the next one has the lock, though the follower goes on answering it.
func TestFollowerIsCutOff(t *testing.T) {
	reconnects(t)
	e := own(t)
	for round := range 3 {
		root := enginetest.Root(t)
		leader, followers := e.Leader()
		c := enginetest.Config
		holder := open(t, c, zookeeper.Ensemble{Servers: []string{followers[0].Addr()}, Root: root})
		other := open(t, c, zookeeper.Ensemble{Servers: []string{leader.Addr(), followers[1].Addr()}, Root: root})
		held := enginetest.Lock(t, holder, "name")
		out := enginetest.LockIn(t, other, "name")
		lost := make(chan time.Time, 1)
		ctx := held.Context()
		go func() {
			<-ctx.Done()
			lost <- time.Now()
		}()
		start := time.Now()
		e.Part(followers[0], true)
		got := <-out
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		knew := <-lost
		t.Logf("round %d: the holder knew after %v, the next had it after %v", round, knew.Sub(start), got.At.Sub(start))
		if knew.After(got.At) {
			t.Errorf("the next had it %v before the holder knew", knew.Sub(got.At))
		}
		if got.Lock.Token() <= held.Token() {
			t.Errorf("the token %d after %d", got.Lock.Token(), held.Token())
		}
		enginetest.Unlock(t, got.Lock)
		e.Part(followers[0], false)
		holder.Close()
		e.AwaitServing()
	}
}
