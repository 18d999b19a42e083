package restart

import (
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// extended tries to extend a lock until the nodes answer.
func extended(t *testing.T, lock *redlatch.Lock) (err error) {
	t.Helper()
	locktest.Await(t, "the nodes answer", func() bool {
		err = lock.Extend(t.Context(), locktest.TTL)
		return !errors.Is(err, redlatch.ErrNoQuorum) && !locktest.Late(err)
	})
	return err
}

// What becomes of a lock that is held on one server when something happens to that. Where it is not extended, it is once the
// server is vouched for, if that has it still.
func TestHeldLockOnOneServer(t *testing.T) {
	t.Parallel()
	command := func(args ...string) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, args...) }
	}
	for name, c := range map[string]struct {
		args           []string
		durable        bool
		happen         func(*testing.T, *redistest.Server)
		refused, ended bool
	}{
		"restart, Durable":       {args: onDisk, durable: true, happen: locktest.KillAndRestart},
		"restart with its file":  {args: onDisk, happen: locktest.KillAndRestart, refused: true},
		"restart without a file": {happen: locktest.KillAndRestart, refused: true, ended: true},
		"FLUSHALL":               {happen: command("FLUSHALL"), refused: true, ended: true},
		"FLUSHDB":                {happen: command("FLUSHDB"), refused: true, ended: true},
		"SCRIPT FLUSH":           {happen: command("SCRIPT", "FLUSH")},
		"CONFIG RESETSTAT":       {happen: command("CONFIG", "RESETSTAT")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				s := redistest.New(t, redistest.Options{Binary: binary, Args: c.args})
				config := locktest.WithMaxTTL(locktest.WithQuarantine(s.URL()), locktest.TTL) // which nobody waits for
				config.Durable = c.durable
				client := locktest.Open(t, config)
				locktest.Vouch(t, client, "n0")
				held := locktest.TryLock(t, client, "held", redlatch.WithoutRenewal())
				until := held.Until()
				c.happen(t, s)
				if c.refused {
					if err := extended(t, held); !errors.Is(err, redlatch.ErrNotAdmitted) || held.Until() != until {
						t.Errorf("the extension, by %v: %v; want ErrNotAdmitted", held.Until().Sub(until), err)
					}
					if _, err := locktest.AwaitAnswer(t, client, "new"); !errors.Is(err, redlatch.ErrNotAdmitted) {
						t.Errorf("a new lock: %v, want ErrNotAdmitted", err)
					}
					locktest.Vouch(t, client, "n0")
				}
				if err := extended(t, held); errors.Is(err, redlatch.ErrLost) != c.ended || !c.ended && err != nil {
					t.Errorf("the extension: %v; lost %t is wanted", err, c.ended)
				}
				if _, err := locktest.AwaitAnswer(t, client, "new"); err != nil {
					t.Errorf("a new lock: %v", err)
				}
			})
		})
	}
}

// One of three nodes forgets all, and everything goes on. Two do: nothing does, and new locks can be had when one of them is vouched for.
func TestHeldLockOnThreeNodes(t *testing.T) {
	t.Parallel()
	for name, happen := range map[string]func(*testing.T, *redistest.Server){
		"restart":  locktest.KillAndRestart,
		"FLUSHALL": func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, "FLUSHALL") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				nodes := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
				client := locktest.Open(t, locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(nodes)...), locktest.TTL))
				locktest.Vouch(t, client, "n0", "n1", "n2")
				held := locktest.TryLock(t, client, "held", redlatch.WithoutRenewal())
				locktest.AwaitOn(t, held, nodes...)
				happen(t, nodes[0])
				if err := extended(t, held); err != nil {
					t.Errorf("the extension without one node: %v", err)
				}
				if _, err := locktest.TryInTime(t, client, "new"); err != nil {
					t.Errorf("a new lock without one node: %v", err)
				}

				happen(t, nodes[1])
				until := held.Until()
				if err := extended(t, held); !errors.Is(err, redlatch.ErrNotAdmitted) || held.Until() != until {
					t.Errorf("the extension without two nodes, by %v: %v; want ErrNotAdmitted", held.Until().Sub(until), err)
				}
				if _, err := locktest.TryInTime(t, client, "newer"); !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Errorf("a new lock without two nodes: %v, want ErrNotAdmitted", err)
				}
				locktest.Vouch(t, client, "n1")
				if _, err := locktest.TryInTime(t, client, "newest"); err != nil {
					t.Errorf("a new lock by a node that was vouched for: %v", err)
				}
			})
		})
	}
}
