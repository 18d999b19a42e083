package waiting

import (
	"context"
	"errors"
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
	_, left, _ := last.Load().Holder()
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
