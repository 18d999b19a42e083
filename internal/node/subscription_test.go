package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// shards is what a Cluster's slots subscribe at.
type shards struct {
	mu   sync.Mutex // guards made and live
	made []string
	live int
	// refuse is what a subscription fails with, if anything.
	refuse error
	broken chan struct{}
}

func (s *shards) subscribe(ctx context.Context, channel string, ready func(), _ func(string)) error {
	s.count(channel, 1)
	defer s.count("", -1)
	if s.refuse != nil {
		return s.refuse
	}
	ready()
	select {
	case <-s.broken:
		return errors.New("the slot is elsewhere")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *shards) count(channel string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if channel != "" {
		s.made = append(s.made, channel)
	}
	s.live += by
}

// soFar is what was subscribed to, and how many live.
func (s *shards) soFar() (made []string, live int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, s.live
}

// newSlot returns the node of a slot that was inspected.
func newSlot(t *testing.T, tag string, counted *subscriptions, changed func(string)) *Node {
	n := New(nil, Options{slotTag: tag, subscriptions: counted, Waiter: "me", Changed: changed})
	n.link.connected.Store(1)
	n.link.seen.Store(&sighting{run: "a"})
	t.Cleanup(func() {
		n.end()
		n.background.Wait()
	})
	return n
}

// A slot's subscription is kept while somebody waits, and dropped when nobody does, which nobody
// is told of. Another server's is none.
func TestSlotSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, changes, counted := &shards{broken: make(chan struct{})}, 0, new(subscriptions)
		n := newSlot(t, "7", counted, func(string) { changes++ })
		first := n.subscription(s.subscribe)
		synctest.Wait()
		if made, _ := s.soFar(); len(made) != 1 || made[0] != "redlatch:wake:{7}me" || !first.hasSettled() {
			t.Fatalf("subscribed to %q", made)
		}
		for range 100 { // heartbeats
			time.Sleep(script.Patience * 3 / 10)
			if n.subscription(s.subscribe) != first {
				t.Fatal("another while somebody waits")
			}
		}
		time.Sleep(2 * subscriptionIdle)
		synctest.Wait()
		if _, live := s.soFar(); live != 0 || counted.n.Load() != 0 || changes != 0 {
			t.Fatalf("idle: %d live, %d counted, %d changes", live, counted.n.Load(), changes)
		}

		second := n.subscription(s.subscribe)
		n.link.seen.Store(&sighting{run: "b"})
		third := n.subscription(s.subscribe)
		synctest.Wait()
		if _, live := s.soFar(); second == third || live != 1 || changes != 0 {
			t.Errorf("another server has the slot: the same %t, %d live, %d changes", second == third, live, changes)
		}

		s.broken <- struct{}{}
		synctest.Wait()
		if _, live := s.soFar(); live != 0 || changes != 1 {
			t.Errorf("broken: %d live, %d changes, want who waits to look", live, changes)
		}
		if n.subscription(s.subscribe) != nil {
			t.Error("another right after one broke")
		}
		time.Sleep(2 * resubscribePause)
		if n.subscription(s.subscribe) == nil {
			t.Error("none a while after one broke")
		}
		synctest.Wait()
	})
}

// Where the server forbids it, it is not asked again for a while, or until the connection is another; where it cannot
// just now, it is. Who waits for the answer is told at once. More than maxSubscriptions there are not.
func TestSlotSubscriptionRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counted := new(subscriptions)
		for text, want := range map[string]int{"NOPERM no": 1, "ERR unknown command 'SSUBSCRIBE'": 1, "CLUSTERDOWN": 3, "MOVED 7 a:1": 3} {
			s := &shards{refuse: &driver.ServerError{Text: text}}
			n := newSlot(t, "7", counted, func(string) { t.Error("nobody had relied on it") })
			for range 3 {
				made := n.subscription(s.subscribe)
				synctest.Wait()
				if made != nil && !made.hasSettled() {
					t.Errorf("%s: who waits is not told", text)
				}
				time.Sleep(2 * resubscribePause)
			}
			if made, _ := s.soFar(); len(made) != want {
				t.Errorf("%s: asked %d times, want %d", text, len(made), want)
			}
			time.Sleep(refusedPause)
			n.subscription(s.subscribe)
			synctest.Wait()
			if made, _ := s.soFar(); len(made) != want+1 {
				t.Errorf("%s: after a while asked %d times, want %d: the rights may have changed", text, len(made), want+1)
			}
			time.Sleep(2 * resubscribePause)
			n.link.connected.Store(2)
			n.subscription(s.subscribe)
			synctest.Wait()
			if made, _ := s.soFar(); len(made) != want+2 {
				t.Errorf("%s: over another connection asked %d times, want %d: it may be another user's, or another server", text, len(made), want+2)
			}
		}
		counted.n.Store(maxSubscriptions - 1)
		one, more := new(shards), new(shards)
		if newSlot(t, "7", counted, nil).subscription(one.subscribe) == nil || newSlot(t, "8", counted, nil).subscription(more.subscribe) != nil ||
			counted.n.Load() != maxSubscriptions {
			t.Error("the bound is another")
		}
		synctest.Wait()
	})
}

// A node's name for a waiter says how it hears, and its own is the same everywhere.
func TestWaiterNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"me/1": "me/1", "-me/1": "me/1", "{7}me/1": "me/1", "-+me/1": "-+me/1", "-+-me/1": "-+me/1", "-+{7}me/1": "-+me/1", "me:{x}/1": "me:{x}/1",
	} {
		if got := vote.Waiter(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
