package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// counterOf names the side key that holds a lock's token counter, as the wire
// format has it.
func counterOf(name string) string { return "redlatch:{" + name + "}:token:" + name }

// The servers extend in time, and their answers come when the lock has been
// lost: before the end of the guard, or after the end of the validity. Lost is
// final, and what was extended is released.
func TestExtensionThatCompletesTooLate(t *testing.T) {
	t.Parallel()
	for _, guard := range []time.Duration{0, 150 * time.Millisecond} {
		t.Run(fmt.Sprintf("guard=%v", guard), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			c.NodeTimeout = time.Second // much longer than the lock is valid
			client := locktest.Open(t, c)
			lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(300*time.Millisecond), redlatch.WithoutRenewal(), redlatch.WithGuard(guard))
			until := lock.Until()
			for _, p := range proxies {
				p.HoldBack(redistest.Replies, true)
			}
			ended := make(chan error, 1)
			go func() { ended <- lock.Extend(context.Background(), locktest.TTL) }()
			<-lock.Context().Done()
			for _, p := range proxies {
				p.HoldBack(redistest.Replies, false)
			}
			if err := <-ended; !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("extend: %v", err)
			}
			if !errors.Is(lock.Err(), redlatch.ErrLost) || !errors.Is(context.Cause(lock.Context()), redlatch.ErrLost) {
				t.Errorf("%v, %v", lock.Err(), context.Cause(lock.Context()))
			}
			if !lock.Until().Equal(until) {
				t.Errorf("the end of its validity moved by %v", lock.Until().Sub(until))
			}
			for _, s := range nodes {
				locktest.AwaitValue(t, s, t.Name(), "") // long before that TTL is over
			}
		})
	}
}

// A node that lost the key is given it back by an extension that a quorum
// confirmed.
func TestLostKeyIsRepaired(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 5) // where the client may not have heard yet of the last repair
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
		locktest.AwaitOn(t, lock, nodes...)
		id := locktest.Value(t, nodes[0], t.Name())
		for _, s := range nodes { // one after the other
			locktest.Do(t, s, "DEL", t.Name(), counterOf(t.Name()))
			locktest.Await(t, "the node has it again", func() bool {
				if err := lock.Extend(t.Context(), locktest.TTL); err != nil && !locktest.Late(err) {
					t.Fatal(err)
				}
				return locktest.Value(t, s, t.Name()) == id
			})
			if got := locktest.Value(t, s, counterOf(t.Name())); got != fmt.Sprint(lock.Token()) {
				t.Errorf("the counter that was given back is %s, the token %d", got, lock.Token())
			}
			if left := locktest.Remaining(t, s, t.Name()); left <= 0 || left > locktest.TTL {
				t.Errorf("the key that was given back has %v left", left)
			}
		}
		locktest.Unlock(t, lock)
		for _, s := range nodes {
			locktest.AwaitValue(t, s, t.Name(), "")
		}
	})
}

// Renewal repairs by itself.
func TestRenewalRepairs(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	renewed(t, func(name string) error {
		lock := locktest.TryLock(t, client, name, redlatch.WithTTL(6*time.Second))
		id := hook.LeaseOf(lock).HolderID()
		has := func() bool { return lock.Err() != nil || locktest.Value(t, nodes[2], name) == id }
		locktest.Await(t, "the node has it", has)
		locktest.Do(t, nodes[2], "DEL", name)
		locktest.Await(t, "the node has it again", has)
		if err := lock.Err(); err != nil {
			return err
		}
		locktest.Unlock(t, lock)
		return nil
	})
}

// Without a quorum nothing is repaired: one node lost the key, one does not
// answer. When the second is back, both are fine.
func TestNoRepairWithoutAQuorum(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	wires := []*locktest.Wire{locktest.Tap(proxies[0]), locktest.Tap(proxies[1]), locktest.Tap(proxies[2])}
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
	locktest.AwaitOn(t, lock, nodes...)
	locktest.Do(t, nodes[0], "DEL", t.Name())
	proxies[1].HoldBack(redistest.Replies, true)
	var failure *redlatch.QuorumError
	locktest.Await(t, "the node without the key has answered", func() bool {
		err := lock.Extend(t.Context(), locktest.TTL)
		if !errors.Is(err, redlatch.ErrNoQuorum) || lock.Err() != nil {
			t.Fatalf("extend: %v; the lock is %v", err, lock.Err())
		}
		failure = locktest.FailureOf(t, err)
		return failure.Nodes[0].Verdict != redlatch.VoteUnknown && failure.Nodes[0].Verdict != redlatch.VoteNotSent
	})
	if failure.Nodes[0].Verdict != redlatch.VoteNotOurs || failure.Nodes[2].Verdict != redlatch.VoteGranted && failure.Nodes[2].Verdict != redlatch.VoteUnknown {
		t.Errorf("%v", failure)
	}
	if v := locktest.Value(t, nodes[0], t.Name()); v != "" {
		t.Errorf("repaired without a quorum: %q", v)
	}
	for i, w := range wires {
		if w.Count("repair") > 0 {
			t.Errorf("node %d was repaired without a quorum", i)
		}
	}
	proxies[1].HoldBack(redistest.Replies, false)
	locktest.Await(t, "extended", func() bool { return lock.Extend(t.Context(), locktest.TTL) == nil })
	locktest.Await(t, "repaired", func() bool { return locktest.Value(t, nodes[0], t.Name()) != "" })
	locktest.Unlock(t, lock)
}

// A node that lost the key may vote for another's attempt, which fails, before the lock is extended again. That raised its
// counter, and nobody has held the lock since: the node gets the key back, and its counter does not fall.
func TestRepairWhereOthersTried(t *testing.T) {
	t.Parallel()
	writes, same := redlatch.WithLabel(""), func(name string) string { return name }
	for kind, c := range map[string]struct {
		option, others redlatch.Option
		key            func(name string) string
	}{
		"a lock":        {writes, writes, same},
		"several names": {redlatch.WithAlso(t.Name() + "/also"), redlatch.WithAlso(t.Name() + "/also"), same},
		"a permit":      {redlatch.WithPermits(1), redlatch.WithPermits(1), func(name string) string { return locktest.SlotKey(name, 0) }},
		"a reader":      {redlatch.WithShared(), writes, same},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			config := locktest.Config(redistest.URLs(nodes)...)
			client, other := locktest.Open(t, config), locktest.Open(t, config)
			name, key := t.Name(), c.key(t.Name())
			counter := node.CounterKey(key)
			lock := locktest.TryLock(t, client, name, c.option, redlatch.WithoutRenewal())
			given := func() bool {
				if err := lock.Extend(t.Context(), locktest.TTL); err != nil && !locktest.Late(err) {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(nodes, func(s *redistest.Server) bool { return locktest.Value(t, s, key) == "" })
			}
			locktest.Await(t, "all nodes have the key", given)
			locktest.Do(t, nodes[0], append([]string{"DEL", key}, lock.Names()[1:]...)...)
			var raised uint64
			locktest.Await(t, "the node has voted for another, and that is undone", func() bool {
				if _, err := other.TryLock(t.Context(), name, c.others); err == nil {
					t.Fatal("two holders")
				}
				raised, _ = strconv.ParseUint(locktest.Value(t, nodes[0], counter), 10, 64)
				return raised > lock.Token() && locktest.Value(t, nodes[0], key) == ""
			})
			locktest.Await(t, "the node has the key again, as all have", given)
			if now, _ := strconv.ParseUint(locktest.Value(t, nodes[0], counter), 10, 64); now < raised {
				t.Errorf("the counter is %d after %d", now, raised)
			}
			locktest.Unlock(t, lock)
		})
	}
}

// A node that lost its keys may let other readers in, under a larger counter, before the lock of an earlier reader is
// extended again: that one joins them.
func TestRepairAmongReaders(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	config := locktest.Config(redistest.URLs(nodes)...)
	name, readers := t.Name(), node.ReadersKey(t.Name())
	read := func() *redlatch.Lock {
		return locktest.TryLock(t, locktest.Open(t, config), name, redlatch.WithShared(), redlatch.WithoutRenewal())
	}
	lock := read()
	locktest.AwaitOn(t, lock, nodes...)
	locktest.Do(t, nodes[0], "DEL", name, readers)
	other := read()
	locktest.AwaitOn(t, other, nodes[0])
	locktest.Await(t, "both are there", func() bool {
		if err := lock.Extend(t.Context(), locktest.TTL); err != nil && !locktest.Late(err) {
			t.Fatal(err)
		}
		return locktest.Do(t, nodes[0], "ZCARD", readers) == int64(2)
	})
	locktest.Unlock(t, other)
	locktest.Unlock(t, lock)
}

// Where another has the key it is not given back, and the other's stays.
func TestNoRepairWhereAnotherIs(t *testing.T) {
	t.Parallel()
	for kind, option := range map[string]redlatch.Option{
		"a lock": redlatch.WithLabel(""), "several names": redlatch.WithAlso(t.Name() + "/also"), "a reader": redlatch.WithShared(),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				nodes := locktest.SharedOf(t, binary, 5)
				client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
				name, readers := t.Name(), node.ReadersKey(t.Name())
				lock := locktest.TryLock(t, client, name, option, redlatch.WithoutRenewal())
				locktest.AwaitOn(t, lock, nodes...)
				for _, s := range nodes[:2] {
					locktest.Do(t, s, "DEL", name, readers)
				}
				locktest.Do(t, nodes[1], "SET", name, "theirs", "PX", "60000")
				locktest.Await(t, "the node where nobody is has the key again", func() bool {
					if err := lock.Extend(t.Context(), locktest.TTL); err != nil && !locktest.Late(err) {
						t.Fatal(err)
					}
					return locktest.Value(t, nodes[0], name) != ""
				})
				locktest.Unlock(t, lock)
				if v := locktest.Value(t, nodes[1], name); v != "theirs" || locktest.Do(t, nodes[1], "EXISTS", readers) != int64(0) {
					t.Errorf("another's key is now %q", v)
				}
				locktest.Do(t, nodes[1], "DEL", name)
			})
		})
	}
}
