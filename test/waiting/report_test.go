package waiting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A call that others are ahead of makes no try, and still its reports and its error say who has the lock
// now, and for how long: also when the lock was not renewed, and when it has another holder.
func TestReportWhileOthersAreAhead(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	clients := clientsOf(t, locktest.Config(redistest.URLs(nodes)...), 4)
	given, cancel := context.WithCancel(locktest.Within(t, 3*locktest.Patience))
	defer cancel()
	queued := func(n int) {
		t.Helper()
		locktest.Await(t, "it is queued", func() bool {
			tickets := ticketsOn(t, nodes, t.Name())
			return tickets[0]+tickets[1]+tickets[2] == n
		})
	}

	first := locktest.TryLock(t, clients[0], t.Name(), redlatch.WithLabel("first"), redlatch.WithoutRenewal())
	second := locktest.LockIn(t.Context(), clients[1], t.Name(), redlatch.WithLabel("second"))
	queued(1)
	third := locktest.LockIn(given, clients[2], t.Name())
	queued(2)
	var last atomic.Pointer[redlatch.QuorumError]
	report, reported := locktest.WhenWaiting(func(err error) {
		failure, _ := errors.AsType[*redlatch.QuorumError](err)
		last.Store(failure)
	})
	fourth := locktest.LockIn(given, clients[3], t.Name(), report)
	<-reported
	queued(3)

	says := func(err *redlatch.QuorumError, label string, within time.Duration) bool {
		holder, left, ok := err.Holder()
		return ok && holder.Label == label && left >= 0 && left < within
	}
	var left time.Duration
	locktest.Await(t, "the holder is reported", func() bool { // on a busy machine the first report may be that no node has answered
		failure := last.Load()
		_, left, _ = failure.Holder()
		return says(failure, "first", locktest.TTL)
	})
	locktest.Await(t, "less is left than before", func() bool { return says(last.Load(), "first", left-time.Second) })
	locktest.Unlock(t, first)
	o := <-second
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	locktest.Await(t, "the next holder is reported", func() bool { return says(last.Load(), "second", locktest.TTL) })
	cancel()
	if err := locktest.FailureOf(t, (<-fourth).Err); !says(err, "second", locktest.TTL) {
		t.Errorf("its error says %v", err)
	}
	<-third
	locktest.Unlock(t, o.Lock)
}

// A call is told what stands in the way of one that is ahead of it and wants further names: of its own name,
// and of no other.
func TestReportBehindACallForMore(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	name, other := t.Name()+"/a", t.Name()+"/b"
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	locktest.Do(t, nodes[0], "SET", other, "a foreign holder", "PX", fmt.Sprint(locktest.TTL.Milliseconds()))
	for _, p := range proxies[1:] {
		p.BlackHole(redistest.Both, true)
	}
	given, cancel := context.WithCancel(locktest.Within(t, locktest.Patience))
	defer cancel()
	seen, once := make(chan struct{}), sync.Once{}
	ahead := make(chan error, 1)
	go func() {
		_, err := client.LockAll(given, []string{other, name}, redlatch.WithWaitReport(func(err error) {
			if failure, ok := errors.AsType[*redlatch.QuorumError](err); ok && failure.Nodes[0].Name == other {
				once.Do(func() { close(seen) })
			}
		}))
		ahead <- err
	}()
	select {
	case <-seen:
	case err := <-ahead:
		t.Fatal(err)
	}
	report, reported := locktest.WhenWaiting(func(err error) {
		failure := locktest.FailureOf(t, err)
		if failure.Name != name || failure.Nodes[0].Verdict == redlatch.VoteHeld {
			t.Errorf("it waits for %q, and is told %v", name, err)
		}
	})
	behind := locktest.LockIn(given, client, name, report)
	<-reported
	cancel()
	if failure := locktest.FailureOf(t, (<-behind).Err); failure.Name != name || failure.Nodes[0].Verdict == redlatch.VoteHeld || !errors.Is(failure, redlatch.ErrNoQuorum) {
		t.Errorf("it waited for %q, and the error is %v", name, failure)
	}
	// On a busy machine the last answer of the node that says so may have been late.
	if failure := locktest.FailureOf(t, <-ahead); failure.Nodes[0].Verdict != redlatch.VoteUnknown && (failure.Name != other || failure.Nodes[0].Name != other) {
		t.Errorf("the call ahead says %v", failure)
	}
}
