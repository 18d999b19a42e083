package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// permitsSeen is what an observer of permits was yielded: the labels by slot.
type permitsSeen struct {
	held string
	err  error
}

// observePermits observes the permits of the test's name until the test is over.
func observePermits(t *testing.T, client *redlatch.Client) <-chan permitsSeen {
	return follow(t, func(ctx context.Context, seen chan<- permitsSeen) {
		for held, err := range client.ObservePermits(ctx, t.Name()) {
			var text []string
			for _, permit := range held {
				text = append(text, fmt.Sprintf("%d %s", permit.Slot, permit.Holder.Label))
			}
			seen <- permitsSeen{strings.Join(text, ", "), err}
		}
	})
}

// awaitPermitsSeen waits until that is what is held, and returns what was yielded before.
func awaitPermitsSeen(t *testing.T, seen <-chan permitsSeen, held string) (before []permitsSeen) {
	t.Helper()
	return awaitSight(t, seen, fmt.Sprintf("%q", held), func(s permitsSeen) bool { return s.err == nil && s.held == held })
}

// An observer of permits is told all that are held when one is acquired or released. The servers tell it, so
// that it does not have to look again.
func TestObserverOfPermits(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			c := locktest.Config(redistest.URLs(locktest.Shared(t, n))...)
			holder := locktest.Open(t, c)
			seen := observePermits(t, locktest.Open(t, c))
			awaitPermitsSeen(t, seen, "")
			acquire := func(label string) *redlatch.Lock {
				return locktest.TryLock(t, holder, t.Name(), redlatch.WithPermits(256), redlatch.WithLabel(label))
			}
			stays := acquire("stays")
			awaitPermitsSeen(t, seen, fmt.Sprintf("%d stays", stays.Slot()))
			// By looks alone each of two changes, made when it has just looked, is seen 1.4 s later. A busy
			// machine may take as long, but not each time.
			const soon, most = 1400 * time.Millisecond, 20
			soonest := time.Hour
			for i := 0; i < 8 || soonest > soon && i < most; i++ {
				start := time.Now()
				lock := acquire(fmt.Sprint("holder ", i))
				both := []string{fmt.Sprintf("%d stays", stays.Slot()), fmt.Sprintf("%d holder %d", lock.Slot(), i)}
				if lock.Slot() < stays.Slot() {
					slices.Reverse(both)
				}
				awaitPermitsSeen(t, seen, strings.Join(both, ", "))
				locktest.Unlock(t, lock)
				awaitPermitsSeen(t, seen, fmt.Sprintf("%d stays", stays.Slot()))
				soonest = min(soonest, time.Since(start))
			}
			locktest.Unlock(t, stays)
			awaitPermitsSeen(t, seen, "")
			if soonest > soon {
				t.Errorf("two changes were told after %v at the soonest", soonest)
			}
		})
	}
}

// Whichever node is away, an observer is told the same, but while no quorum answers, which is told once; and
// then all permits that are held.
func TestObserverOfPermitsOfFewNodes(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(redistest.URLs(nodes)...)
	watched := locktest.Through(c, locktest.ProxyURLs(proxies)...)
	watched.NodeTimeout = 200 * time.Millisecond
	holder := locktest.Open(t, c)
	seen := observePermits(t, locktest.Open(t, watched))
	awaitPermitsSeen(t, seen, "")
	for i, p := range proxies {
		p.BlackHole(redistest.Both, true)
		lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithPermits(2), redlatch.WithLabel(fmt.Sprint("holder ", i)))
		awaitPermitsSeen(t, seen, fmt.Sprintf("%d holder %d", lock.Slot(), i))
		locktest.Unlock(t, lock)
		awaitPermitsSeen(t, seen, "")
		p.BlackHole(redistest.Both, false)
	}
	lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithPermits(2), redlatch.WithLabel("a"))
	held := fmt.Sprintf("%d a", lock.Slot())
	awaitPermitsSeen(t, seen, held)
	for _, p := range proxies {
		p.BlackHole(redistest.Both, true)
	}
	select {
	case s := <-seen:
		if !errors.Is(s.err, redlatch.ErrNoQuorum) {
			t.Errorf("without a quorum: %+v", s)
		}
	case <-time.After(locktest.Patience):
		t.Error("without a quorum nothing is told")
	}
	time.Sleep(3 * time.Second) // two looks, of which neither tells it again
	for _, p := range proxies {
		p.BlackHole(redistest.Both, false)
	}
	for _, s := range awaitPermitsSeen(t, seen, held) {
		t.Errorf("before the same again: %+v", s)
	}
	locktest.Unlock(t, lock)
}

// A server comes back with old data: of a slot no earlier holder is told after a later one.
func TestObserverOfPermitsDoesNotGoBack(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			holder := locktest.Open(t, c)
			seen := observePermits(t, locktest.Open(t, c))
			key := locktest.SlotKey(t.Name(), 0)
			counter := "redlatch:{" + t.Name() + "}:token:" + key
			acquire := func(label string) *redlatch.Lock {
				lock := locktest.TryLock(t, holder, t.Name(), redlatch.WithPermits(1), redlatch.WithLabel(label), redlatch.WithoutRenewal())
				awaitPermitsSeen(t, seen, "0 "+label)
				return lock
			}
			ids, tokens := make([]string, n), make([]string, n)
			first := acquire("first")
			for i, s := range nodes {
				locktest.Await(t, "all nodes have the first", func() bool { ids[i] = locktest.Value(t, s, key); return ids[i] != "" })
				tokens[i] = locktest.Value(t, s, counter)
			}
			locktest.Unlock(t, first)
			for _, s := range nodes { // one of which chooses the slot
				locktest.AwaitValue(t, s, key, "")
			}
			second := acquire("second")
			for i, s := range nodes { // else there is a moment in which nobody has most of them
				locktest.Await(t, "all nodes have the second", func() bool {
					v := locktest.Value(t, s, key)
					has := v != "" && v != ids[i]
					if !has { // a busy machine's node was late, and is given it by an extension
						_ = second.Extend(t.Context(), c.TTL)
					}
					return has
				})
			}
			for i, s := range nodes {
				locktest.Do(t, s, "SET", counter, tokens[i])
				locktest.Do(t, s, "SET", key, ids[i], "PX", "4000")
			}
			// The old key ends by itself; by then it was looked at several times.
			for _, s := range awaitPermitsSeen(t, seen, "") {
				if s.held == "0 first" {
					t.Error("the first is told after the second")
				}
			}
			_ = second.Unlock(t.Context()) // it is lost
		})
	}
}

// A change is on the node that keeps the queue first, which tells the observer of it. The observer looks again
// until the others say the same, also if they answer before that node does.
func TestObserverOfPermitsHearsTheArbiter(t *testing.T) {
	t.Parallel()
	nodes := make([]*redistest.Server, 3)
	for i := range nodes {
		nodes[i] = redistest.New(t, redistest.Options{})
	}
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	chosen := noteChoices(proxies)
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name(), redlatch.WithPermits(1)))
	arbiter := chosen.take()[0].node
	first, others := nodes[arbiter], slices.Delete(slices.Clone(nodes), arbiter, arbiter+1)
	proxies[arbiter].Delay(redistest.Replies, 50*time.Millisecond, 0)
	looks := func() (counts [2]string) {
		for i, s := range others {
			info, err := s.Info("commandstats")
			if err != nil {
				t.Fatal(err)
			}
			counts[i], _, _ = strings.Cut(info["cmdstat_mget"], ",")
		}
		return counts
	}
	seen, key := observePermits(t, client), locktest.SlotKey(t.Name(), 0)
	awaitPermitsSeen(t, seen, "")
	// The next look by itself is 1.4 s later. A busy machine may take as long, but not each time.
	const soon, most = 1400 * time.Millisecond, 20
	soonest := [2]time.Duration{time.Hour, time.Hour} // of a grant, and of a release
	for i := 0; i < 8 || max(soonest[0], soonest[1]) > soon && i < most; i++ {
		held, change := "", []string{"DEL", key}
		if i%2 == 0 {
			held, change = fmt.Sprintf("0 holder %d", i), []string{"SET", key, fmt.Sprintf("ABCDEFGHIJKLMNOPQRSTUVWXYZ.mwwuymle.holder %d", i)}
		}
		before := looks()
		start := time.Now()
		locktest.Do(t, first, change...)
		locktest.Await(t, "both others were looked at", func() bool { now := looks(); return now[0] != before[0] && now[1] != before[1] })
		for _, s := range others {
			locktest.Do(t, s, change...)
		}
		awaitPermitsSeen(t, seen, held)
		soonest[i%2] = min(soonest[i%2], time.Since(start))
	}
	if max(soonest[0], soonest[1]) > soon {
		t.Errorf("a grant was told after %v at the soonest, a release after %v", soonest[0], soonest[1])
	}
}
