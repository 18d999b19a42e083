package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// wish is what a call may want that has more on a node than a key of its name, or another.
type wish struct {
	name    string
	options func(name string) []redlatch.Option
	// keys are those that another has on a node that is taken.
	keys func(name string) []string
}

func wishes() []wish {
	return []wish{
		{
			"several names",
			func(name string) []redlatch.Option { return []redlatch.Option{redlatch.WithAlso(name+"/a", name+"/b")} },
			func(name string) []string { return []string{name + "/a"} },
		},
		{
			"reader",
			func(string) []redlatch.Option { return []redlatch.Option{redlatch.WithShared()} },
			func(name string) []string { return []string{name} },
		},
		{
			"permit",
			func(string) []redlatch.Option { return []redlatch.Option{redlatch.WithPermits(2)} },
			func(name string) []string { return []string{locktest.SlotKey(name, 0), locktest.SlotKey(name, 1)} },
		},
	}
}

// paused is the condition of a server that stands still.
func paused(s *redistest.Server) condition {
	return condition{
		name:  "paused",
		begin: func(*redistest.Proxy) error { return s.Pause() },
		end:   func(*redistest.Proxy) error { return s.Resume() },
	}
}

// rotated is m with each node's condition at the node i places further.
func (m mask) rotated(i int) mask { return append(slices.Clone(m[len(m)-i:]), m[:len(m)-i]...) }

// An attempt for several names, for a reader or for a permit fails, since nodes refuse, hang, say nothing, stand
// still or have another's keys, or since its ctx is done: of what it has left nothing is on the nodes that can be
// reached, nor on the others when they are back. TestMasks is the same of a lock.
func TestFailedAttemptsAreUndone(t *testing.T) {
	t.Parallel()
	for _, w := range wishes() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			u := &undoing{wish: w}
			t.Cleanup(func() { u.report(t) })
			up, taken, deaf := named("up"), named("taken"), named("deaf")
			try := func(t *testing.T, nodes []*redistest.Server, m mask) {
				t.Run(m.String(), func(t *testing.T) { u.fail(t, nodes, m, false) })
			}
			together := func(m mask) {
				for i := range m {
					t.Run(m.rotated(i).String(), func(t *testing.T) {
						t.Parallel()
						u.fail(t, locktest.Shared(t, len(m)), m.rotated(i), false)
					})
				}
			}
			together(mask{up, taken, taken})
			for _, bad := range []condition{named("refusing"), named("hung"), deaf} {
				together(mask{up, bad, taken})
				together(mask{up, bad, bad})
			}
			t.Run("cut", func(t *testing.T) {
				t.Parallel()
				u.fail(t, locktest.Shared(t, 3), mask{deaf, deaf, deaf}, true)
			})
			t.Run("own", func(t *testing.T) { // whose servers are paused: one after the other
				t.Parallel()
				nodes := redistest.Nodes(t, 3)
				for i := range nodes {
					try(t, nodes, mask{up, paused(nodes[(i+1)%3]), taken}.rotated(i))
					try(t, nodes, mask{up, paused(nodes[(i+1)%3]), paused(nodes[(i+2)%3])}.rotated(i))
				}
			})
		})
	}
}

// undoing is what is seen of failed attempts for one wish.
type undoing struct {
	wish
	granted           atomic.Int64 // the grants that attempts had heard of when they failed
	reachable, others cleanups
}

func (u *undoing) report(t *testing.T) {
	t.Helper()
	u.reachable.report(t, "nothing left on reachable nodes after")
	u.others.report(t, "nothing left on nodes that came back after")
	t.Logf("%d grants were undone that the attempts had heard of", u.granted.Load())
}

// fail makes one attempt against the mask, which fails. With cut its ctx ends before a node has answered.
func (u *undoing) fail(t *testing.T, nodes []*redistest.Server, m mask, cut bool) {
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.NodeTimeout = 300 * time.Millisecond // who says nothing is waited for
	client, name := locktest.Open(t, c), t.Name()
	reached := func() {
		for i := range m {
			locktest.Await(t, "the node is admitted", func() bool { return client.Admit(t.Context(), fmt.Sprint("n", i)) == nil })
		}
	}
	reached()
	// What is held is seen; and when it was released the nodes know the script for that, of which a node that
	// is not heard could not tell that it does not.
	lock := locktest.TryLock(t, client, name, u.options(name)...)
	locktest.Await(t, "what is held is on a node", func() bool {
		return lock.Err() != nil || slices.ContainsFunc(nodes, func(s *redistest.Server) bool { return len(u.left(t, s, name)) > 0 })
	})
	locktest.Unlock(t, lock)
	for _, s := range nodes {
		u.awaitNothing(t, s, name)
	}

	for i, c := range m {
		if c.name == "taken" {
			for _, key := range u.keys(name) {
				locktest.Do(t, nodes[i], "SET", key, "theirs", "PX", "60000")
			}
		}
		if err := c.begin(proxies[i]); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	if cut {
		ctx = locktest.Within(t, 5*time.Millisecond)
	}
	lock, err := client.TryLock(ctx, name, u.options(name)...)
	if lock != nil || !cut && !errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrNoQuorum) || cut && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("held is %t: %v", lock != nil, err)
	}
	for i, c := range m {
		if c.reached {
			u.reachable.add(u.awaitNothing(t, nodes[i], name))
		}
	}
	if failure, ok := errors.AsType[*redlatch.QuorumError](err); ok {
		for _, a := range failure.Nodes {
			if a.Verdict == redlatch.VoteGranted {
				u.granted.Add(1)
			}
		}
	}

	for i, c := range m {
		if err := c.end(proxies[i]); err != nil {
			t.Fatal(err)
		}
	}
	reached() // what the attempt has sent was executed before
	for i, c := range m {
		took := u.awaitNothing(t, nodes[i], name)
		if !c.reached {
			u.others.add(took)
		}
		if c.name == "taken" {
			locktest.Do(t, nodes[i], append([]string{"DEL"}, u.keys(name)...)...)
		}
	}
}

// awaitNothing waits until nothing is left of an attempt on a server, and returns how long that took.
func (u *undoing) awaitNothing(t *testing.T, s *redistest.Server, name string) time.Duration {
	t.Helper()
	return locktest.Await(t, "nothing is left on "+s.Addr(), func() bool { return len(u.left(t, s, name)) == 0 })
}

// left are the keys on a server that have to do with the name, but for another's, and for counters, which stay.
func (u *undoing) left(t *testing.T, s *redistest.Server, name string) (keys []string) {
	t.Helper()
	for _, key := range locktest.Do(t, s, "KEYS", "*"+name+"*").([]any) {
		key := key.(string)
		theirs := slices.Contains(u.keys(name), key) && locktest.Value(t, s, key) == "theirs"
		if !theirs && !strings.Contains(key, "}:token:") {
			keys = append(keys, key)
		}
	}
	return keys
}
