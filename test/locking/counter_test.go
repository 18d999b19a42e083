package locking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// tokenKey is the key of the token counter for a name without braces.
func tokenKey(name string) string { return "redlatch:{" + name + "}:token:" + name }

// foreignCounters are what no client writes to a token counter. Of the first, one more lock
// can be had.
var foreignCounters = []string{
	"9007199254740990", "9007199254740991", "9007199254740992", "9223372036854775807", "99999999999999999999",
	"1e300", "-5", "abc", "", "list",
}

// setCounter makes value the token counter for name.
func setCounter(t *testing.T, s *redistest.Server, name, value string) {
	t.Helper()
	key := tokenKey(name)
	locktest.Do(t, s, "DEL", key)
	if value == "list" {
		locktest.Do(t, s, "RPUSH", key, "x")
		return
	}
	locktest.Do(t, s, "SET", key, value)
}

// A counter from outside, on the only node: nobody is given a token twice, or one that
// cannot be told from the next. The error names the key, and to delete it mends it.
func TestForeignCounter(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		for what, opens := range aloneAndTogether() {
			client := opens(t, locktest.Config(server.URL()))
			for i, value := range foreignCounters {
				name := fmt.Sprint(t.Name(), what, i)
				setCounter(t, server, name, value)
				tokens := make(map[uint64]bool)
				refusals, anyTardy := 0, false
				var mu sync.Mutex // guards all
				var group sync.WaitGroup
				for range 8 {
					group.Go(func() {
						lock, err := client.TryLock(locktest.Within(t, locktest.Patience), name)
						tardy := false
						for errors.Is(err, redlatch.ErrHeld) || locktest.Late(err) {
							tardy = tardy || locktest.Late(err)
							lock, err = client.TryLock(locktest.Within(t, locktest.Patience), name)
						}
						mu.Lock()
						defer mu.Unlock()
						anyTardy = anyTardy || tardy
						if err != nil {
							refusals++
							if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), tokenKey(name)) {
								t.Errorf("%s: counter %q: %v", what, value, err)
							}
							return
						}
						if tokens[lock.Token()] || lock.Token() >= 1<<53 {
							t.Errorf("%s: counter %q: token %d", what, value, lock.Token())
						}
						tokens[lock.Token()] = true
						if err := lock.Unlock(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				// A try whose answer was late has taken the last token.
				if want := map[bool]int{true: 7, false: 8}[i == 0]; refusals != want && !(anyTardy && refusals == 8) {
					t.Errorf("%s: counter %q: %d of 8 were refused, want %d", what, value, refusals, want)
				}
				if v, _ := locktest.Do(t, server, "GET", name).(string); v != "" {
					t.Errorf("%s: counter %q: the key is left: %q", what, value, v)
				}
				locktest.Do(t, server, "DEL", tokenKey(name))
				locktest.Unlock(t, locktest.TryLock(t, client, name))
			}
		}
	})
}

// A counter from outside of a reader's lock, of a name that is locked with another, and of a permit: there is no lock, the
// error names the key, nothing is left, and to delete the counter mends it.
func TestForeignCounterOfOtherKinds(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		client := locktest.Open(t, locktest.Config(server.URL()))
		for kind, c := range map[string]struct {
			option func(name string) redlatch.Option
			key    func(name string) string // whose counter it is
		}{
			"reader":        {func(string) redlatch.Option { return redlatch.WithShared() }, func(name string) string { return name }},
			"several names": {func(name string) redlatch.Option { return redlatch.WithAlso(name + "/also") }, func(name string) string { return name + "/also" }},
			"permit":        {func(string) redlatch.Option { return redlatch.WithPermits(1) }, func(name string) string { return locktest.SlotKey(name, 0) }},
		} {
			for i, value := range foreignCounters {
				name := fmt.Sprint(t.Name(), kind, i)
				option, key := c.option(name), c.key(name)
				counter := node.CounterKey(key)
				locktest.Do(t, server, "SET", counter, value)
				wants := []string{counter, "delete the key"}
				if value == "list" {
					locktest.Do(t, server, "DEL", counter)
					locktest.Do(t, server, "RPUSH", counter, "x")
					wants = append(wants, "is of another type")
				}
				if i == 0 { // it is a counter still
					locktest.Unlock(t, locktest.TryLock(t, client, name, option))
					if key != name { // which has the same counter now
						locktest.Do(t, server, "DEL", node.CounterKey(name))
					}
				}
				lock, err := locktest.TryInTime(t, client, name, option)
				if lock != nil || !errors.Is(err, redlatch.ErrRefused) {
					t.Fatalf("%s: counter %q: held %t, %v", kind, value, lock != nil, err)
				}
				for _, want := range wants {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: counter %q: %v does not say %q", kind, value, err, want)
					}
				}
				for _, left := range []string{name, key} {
					if n := locktest.Do(t, server, "EXISTS", left); n != int64(0) {
						t.Errorf("%s: counter %q: %q is left", kind, value, left)
					}
				}
				locktest.Do(t, server, "DEL", counter)
				locktest.Unlock(t, locktest.TryLock(t, client, name, option))
			}
		}
	})
}

// A counter that a client with a wrong clock proposes is moved to within a second of the server's.
func TestProposalOfAWrongClock(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	proposed := func(kind string, several, shared bool, stepsOf func(*node.Node) steps) {
		for _, off := range []time.Duration{-time.Hour, time.Hour} {
			t.Run(fmt.Sprint(kind, off), func(t *testing.T) {
				n := newReadersNode(t, server)
				before := locktest.ServerTime(t, server)
				r := vote.Acquire{Key: n.key, ID: "mine", TTL: time.Minute, Proposed: uint64(before.Add(off).UnixMicro()), Shared: shared}
				if several {
					r.With = &vote.Keys{n.key + "/also"}
				}
				a := stepsOf(n.node).Acquire(t.Context(), r)
				at := time.UnixMicro(int64(a.Counter))
				if a.Verdict != vote.Granted || at.Before(before.Add(-script.Clamp)) || at.After(locktest.ServerTime(t, server).Add(script.Clamp)) {
					t.Errorf("%v under %v at %v, %v", a.Verdict, at, before, a.Err)
				}
			})
		}
	}
	alone := func(n *node.Node) steps { return n }
	proposed("a lock", false, false, alone)
	proposed("several names", true, false, alone)
	proposed("a reader", false, true, alone)
	for kind, joined := range together {
		proposed(kind, false, false, joined)
	}
}

// A counter from outside on one node of three: the others grant, under tokens that grow.
func TestForeignCounterOnOneNode(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		for what, opens := range aloneAndTogether() {
			client := opens(t, locktest.Config(redistest.URLs(nodes)...))
			for i, value := range foreignCounters {
				if i == 0 {
					continue // a client can have written it, and the next token is the last on all nodes
				}
				name := fmt.Sprint(t.Name(), what, i)
				setCounter(t, nodes[1], name, value)
				last := uint64(time.Now().Add(-time.Minute).UnixMicro())
				for range 4 {
					lock, err := client.Lock(locktest.Within(t, locktest.Patience), name)
					if err != nil {
						t.Fatalf("%s: counter %q: %v", what, value, err)
					}
					if lock.Token() <= last || lock.Token() >= 1<<53 {
						t.Errorf("%s: counter %q: token %d after %d", what, value, lock.Token(), last)
					}
					last = lock.Token()
					locktest.Unlock(t, lock)
				}
			}
		}
	})
}
