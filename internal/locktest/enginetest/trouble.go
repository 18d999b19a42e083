//go:build unix

package enginetest

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// ServerTrouble has the leader of an ensemble stand still, and then be able to write nothing any more.
func (e Engine) ServerTrouble(t *testing.T, own Ensemble) {
	t.Run("many try", func(t *testing.T) { e.manyTry(t, own) })
	t.Run("leader stands still", func(t *testing.T) { e.leaderStandsStill(t, own) })
	t.Run("disk full", func(t *testing.T) { e.diskFull(t, own) })
}

// manyTry has more callers try than a client asks for at once, while the leader stands still: those beyond are not
// sent, so that they are not in the way of what is held.
func (e Engine) manyTry(t *testing.T, own Ensemble) {
	client := e.open(t, Patient, own.Addrs(), Root(t))
	Unlock(t, Lock(t, client, "name"))
	leader := own.LeaderPID()
	if err := syscall.Kill(leader, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var beyond atomic.Int64
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			_, err := client.TryLock(t.Context(), fmt.Sprint("name", i))
			if err != nil && strings.Contains(err.Error(), "not sent: too many requests are under way") {
				beyond.Add(1)
			}
		})
	}
	callers.Wait()
	if err := syscall.Kill(leader, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if beyond.Load() == 0 {
		t.Error("all were sent")
	}
	Unlock(t, Lock(t, client, "name"))
}

// leaderStandsStill has the leader stand still for longer than the TTL, while a holder renews its lock and others
// wait for it. Whether the holder keeps it is up to the election; nobody holds beside it, not when the
// leader goes on either.
func (e Engine) leaderStandsStill(t *testing.T, own Ensemble) {
	root := Root(t)
	holder, other := e.open(t, Config, own.Addrs(), root), e.open(t, Config, own.Addrs(), root)
	held := Lock(t, holder, "name")
	out := LockIn(t, other, "name")
	leader := own.LeaderPID()
	if err := syscall.Kill(leader, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	present := held
	select {
	case got := <-out:
		present = succeeded(t, held, got, false)
	case <-time.After(2 * TTL):
	}
	late := e.open(t, Config, own.Addrs(), root)
	if err := syscall.Kill(leader, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 20 { // the one that led believes for a moment that it does
		l, err := late.TryLock(t.Context(), "name")
		if err == nil {
			if present.Err() == nil {
				t.Error("another holds it beside")
			}
			Unlock(t, l)
			break
		}
		if !errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if present == held {
		held.Unlock(t.Context()) // it may be lost just now, and the next may have it
		got := <-out
		present = succeeded(t, held, got, true)
	}
	present.Unlock(t.Context())
	Unlock(t, Lock(t, late, "name"))
}

// succeeded is the next lock, which is held after its former holder knew that it was over, and, unless it was
// unlocked, which a lock may be that was lost by its guard, after its validity had run out.
func succeeded(t *testing.T, former *redlatch.Lock, got Outcome, unlocked bool) *redlatch.Lock {
	t.Helper()
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	over := former.Err()
	if early := former.Until().Sub(got.At); over == nil || early > 0 && !unlocked {
		t.Errorf("the next had it %v before the end of the former's validity, which is %v", early, over)
	}
	if got.Lock.Token() <= former.Token() {
		t.Errorf("the token %d after %d", got.Lock.Token(), former.Token())
	}
	return got.Lock
}

// diskFull has the leader be able to write nothing any more. The others go on without it: the holder keeps its
// lock, and who waits has it next.
func (e Engine) diskFull(t *testing.T, own Ensemble) {
	root := Root(t)
	holder, other := e.open(t, Patient, own.Addrs(), root), e.open(t, Patient, own.Addrs(), root)
	held := Lock(t, holder, "name")
	out := LockIn(t, other, "name")
	leader := own.LeaderPID()
	// No file that it writes to grows any more.
	if said, err := exec.Command("prlimit", "--pid", fmt.Sprint(leader), "--fsize=1").CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v: %s", err, said)
	}
	Extend(t, held)
	Await(t, "it is released", func() bool { return held.Unlock(t.Context()) == nil || held.Err() != nil })
	got := <-out
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if got.Lock.Token() <= held.Token() {
		t.Errorf("the token %d after %d", got.Lock.Token(), held.Token())
	}
	Await(t, "another leads", func() bool { return own.LeaderPID() != leader })
	got.Lock.Unlock(t.Context())
}
