package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// choices notes which nodes are asked to choose a slot, for which attempts, in their order.
type choices struct {
	mu  sync.Mutex // guards of
	of  []choice
	act func(node int) redistest.Action // nil to let all pass
}

type choice struct {
	node int
	id   string
}

// noteChoices watches the proxies.
func noteChoices(proxies []*redistest.Proxy) *choices {
	all := new(choices)
	for i, p := range proxies {
		p.OnCommand(func(c redistest.Command) redistest.Action {
			step, id := locktest.StepOf(c)
			if step != "slot" {
				return redistest.Pass
			}
			all.mu.Lock()
			defer all.mu.Unlock()
			all.of = append(all.of, choice{i, id})
			if all.act != nil {
				return all.act(i)
			}
			return redistest.Pass
		})
	}
	return all
}

// begin has act done to what comes from now on, and take returns what came since.
func (c *choices) begin(act func(node int) redistest.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of, c.act = nil, act
}

func (c *choices) take() []choice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of
}

// The arbiter grants a slot and its reply is lost, or it is down: another node chooses, in the same call, and
// the permit is held by those that answer. What the arbiter has granted is taken back there, before its TTL is
// over and while the permit is held.
func TestAnotherNodeChoosesTheSlot(t *testing.T) {
	t.Parallel()
	faults := locktest.Losses()
	faults["down"] = redistest.Pass
	for kind, how := range faults {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const k = 4
			nodes := redistest.Nodes(t, 3)
			proxies := redistest.Proxies(t, nodes)
			client, name := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...)), t.Name()
			acquire := func() *redlatch.Lock { return locktest.TryLock(t, client, name, redlatch.WithPermits(k)) }
			seen := noteChoices(proxies)
			locktest.Unlock(t, acquire())
			awaitNoPermits(t, nodes, name, k)
			arbiter := seen.take()[0].node
			granted := func() (slots []string) {
				for i := range k {
					slots = append(slots, locktest.Value(t, nodes[arbiter], "redlatch:{"+name+"}:token:"+locktest.SlotKey(name, i)))
				}
				return slots
			}
			before := granted()
			if kind == "down" {
				nodes[arbiter].Kill()
				seen.begin(nil)
			} else {
				struck := false
				seen.begin(func(node int) redistest.Action {
					if node != arbiter || struck {
						return redistest.Pass
					}
					struck = true
					return how
				})
			}
			lock := acquire()
			last := seen.take()
			if chose := last[len(last)-1]; chose.node == arbiter {
				t.Errorf("node %d is the arbiter, and these chose: %v", arbiter, last)
			}
			for i, s := range nodes {
				if i != arbiter {
					if v := locktest.Value(t, s, locktest.SlotKey(name, lock.Slot())); v == "" && lock.Err() != nil {
						t.Errorf("node %d does not have slot %d: %v", i, lock.Slot(), lock.Err())
					}
				}
			}
			if kind == "down" {
				locktest.Unlock(t, lock)
				return
			}
			if last[0].node != arbiter {
				t.Fatalf("node %d is the arbiter, and these were asked: %v", arbiter, last)
			}
			locktest.Await(t, "the arbiter has granted a slot", func() bool { return fmt.Sprint(granted()) != fmt.Sprint(before) })
			proxies[arbiter].DropReplies(true) // a connection that lost a reply stays silent
			proxies[arbiter].DropReplies(false)
			locktest.Await(t, "the slot whose grant nobody heard of is taken back", func() bool {
				for _, v := range slotValues(t, nodes[arbiter], name, k) {
					if strings.HasPrefix(v, last[0].id) {
						return false
					}
				}
				return true
			})
			if err := lock.Err(); err != nil {
				t.Error(err)
			}
			locktest.Unlock(t, lock)
			awaitNoPermits(t, nodes, name, k)
		})
	}
}

// Two of three nodes are down, so that nobody gets a permit: a call for one says so, as one for a lock does, and not
// that another holds it. Where all are taken it can say so only if it has asked both nodes that are down.
func TestPermitWithoutAQuorum(t *testing.T) {
	t.Parallel()
	const names = 8
	nodes := redistest.Nodes(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	client, other := locktest.Open(t, c), locktest.Open(t, c)
	name := func(i int) string { return fmt.Sprintf("%s/%d", t.Name(), i) }
	for i := range names {
		locktest.TryLock(t, other, name(i), redlatch.WithPermits(1))
	}
	nodes[1].Kill()
	nodes[2].Kill()
	bothAsked := 0
	for i := range names {
		_, err := client.TryLock(t.Context(), name(i), redlatch.WithPermits(1))
		if failed, ok := errors.AsType[*redlatch.QuorumError](err); !ok {
			t.Fatal(err)
		} else if failed.Nodes[1].Err != nil && failed.Nodes[2].Err != nil {
			bothAsked++
			if !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("all are taken: %v", err)
			}
		} else if !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("all are taken: %v", err)
		}
		locktest.Do(t, nodes[0], "DEL", locktest.SlotKey(name(i), 0))
		if _, err := client.TryLock(t.Context(), name(i), redlatch.WithPermits(1)); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("one is free: %v", err)
		}
	}
	if bothAsked == 0 {
		t.Error("no call has asked both nodes that are down before the third")
	}
}

// The first in the queue is woken up, and its connection to the arbiter breaks before the arbiter is asked for a
// slot. It gets one that another node has chosen, and gives its place at the arbiter up, so that the next does not
// wait for the turn to end by itself.
func TestTurnEndsWhenAnotherNodeChoosesTheSlot(t *testing.T) {
	t.Parallel()
	const k = 2
	nodes := redistest.Nodes(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	holder, name := locktest.Open(t, c), t.Name()
	seen := noteChoices(proxies)
	held := [k]*redlatch.Lock{}
	for i := range held {
		held[i] = locktest.TryLock(t, holder, name, redlatch.WithPermits(k))
	}
	arbiter := seen.take()[0].node
	queue := "redlatch:{" + name + "}:queue:" + locktest.PermitsKey(name)
	var outs [k]<-chan locktest.Outcome
	for i := range outs {
		outs[i] = locktest.LockIn(t.Context(), locktest.Open(t, c), name, redlatch.WithPermits(k))
		locktest.Await(t, "one more is queued", func() bool {
			return locktest.Do(t, nodes[arbiter], "ZCARD", queue) == int64(i+1)
		})
	}
	waiters := locktest.Do(t, nodes[arbiter], "ZRANGE", queue, "0", "-1").([]any)
	var struck, left atomic.Bool
	proxies[arbiter].OnCommand(func(c redistest.Command) redistest.Action {
		switch step, id := locktest.StepOf(c); step {
		case "slot":
			if struck.CompareAndSwap(false, true) {
				return redistest.CutBefore
			}
		case "release-slot": // a place is given up by one in the name of the waiter
			if slices.Contains(waiters, any(id)) {
				left.Store(true)
			}
		}
		return redistest.Pass
	})
	for _, lock := range held {
		locktest.Unlock(t, lock)
	}
	for _, out := range outs {
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		defer locktest.Unlock(t, o.Lock)
	}
	locktest.Await(t, "the place is given up", left.Load)
}
