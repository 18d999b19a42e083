package restart

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
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

// All nodes restart at once. With Durable the lock is where it was, and can be extended; without, nothing is granted.
func TestAllNodesRestart(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprintf("durable=%t", durable), func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				nodes := redistest.Nodes(t, 3, redistest.Options{Binary: binary, Args: onDisk})
				config := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(nodes)...), locktest.TTL)
				config.Durable = durable
				client := locktest.Open(t, config)
				locktest.Vouch(t, client, "n0", "n1", "n2")
				held := locktest.TryLock(t, client, "held", redlatch.WithoutRenewal())
				for _, s := range nodes {
					s.Kill()
				}
				for _, s := range nodes {
					if err := s.Restart(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				want := map[bool]error{true: redlatch.ErrHeld, false: redlatch.ErrNotAdmitted}[durable]
				if _, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "held"); !errors.Is(err, want) {
					t.Errorf("the lock of before: %v, want %v", err, want)
				}
				if err := extended(t, held); durable && err != nil || !durable && !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Errorf("the extension: %v", err)
				}
				if _, err := locktest.AwaitAnswer(t, client, "new"); durable && err != nil || !durable && !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Errorf("a new lock: %v", err)
				}
			})
		})
	}
}

// The deployment is changed while a lock is held. That is not extended any more, and nothing is granted before the quarantine is
// over, unless that is switched off.
func TestHeldLockWhenSettingsChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redlatch.Config){
		"Durable":       func(c *redlatch.Config) { c.Durable = true },
		"MaxTTL":        func(c *redlatch.Config) { c.TTL, c.MaxTTL = locktest.RestartTTL, locktest.RestartTTL },
		"no quarantine": func(c *redlatch.Config) { c.NoQuarantine = true },
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s of %d", name, n), func(t *testing.T) {
				t.Parallel()
				locktest.EachFlavor(t, func(t *testing.T, binary string) {
					nodes := redistest.Nodes(t, n, redistest.Options{Binary: binary, Args: onDisk})
					before := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(nodes)...), locktest.TTL)
					client := locktest.Open(t, before)
					locktest.Vouch(t, client, before.Nodes...)
					held := locktest.TryLock(t, client, "held", redlatch.WithoutRenewal())
					locktest.AwaitOn(t, held, nodes...)
					after := before
					change(&after)
					next := locktest.OpenIn(t, after, hook.Surroundings{})
					reset(t, next, after.Nodes...)
					until := held.Until()
					if err := extended(t, held); !isDisagreement(err) || held.Until() != until {
						t.Errorf("the extension, by %v: %v", held.Until().Sub(until), err)
					}
					_, err := locktest.TryInTime(t, next, "new")
					if off := after.NoQuarantine; off && err != nil || !off && !errors.Is(err, redlatch.ErrNotAdmitted) {
						t.Errorf("a new lock: %v", err)
					}
					if _, err := locktest.TryInTime(t, next, "held"); err == nil && held.Err() == nil {
						t.Error("a second holder")
					}
				})
			})
		}
	}
}
