package restart

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A node where the last holder's release is late refuses the next lock, which a majority has. Until that is
// extended it needs all the others, and the page says so.
func TestLockThatOneNodeRefused(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(redistest.URLs(nodes)...)
	client, last := locktest.Open(t, c), locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
	former := locktest.TryLock(t, last, "job")
	locktest.AwaitOn(t, former, nodes...)
	proxies[2].HoldBack(redistest.Requests, true)
	locktest.Unlock(t, former)
	lock := locktest.TryLock(t, client, "job", redlatch.WithoutRenewal())
	proxies[2].HoldBack(redistest.Requests, false)
	locktest.AwaitValue(t, nodes[2], "job", "")
	locktest.AwaitOn(t, lock, nodes[:2]...)

	nodes[0].Pause()
	var failure *redlatch.QuorumError
	locktest.Await(t, "that node has answered", func() bool {
		err := lock.Extend(t.Context(), locktest.TTL)
		if err == nil || lock.Err() != nil {
			t.Fatalf("extended by one node: %v, %v", err, lock.Err())
		}
		failure = locktest.FailureOf(t, err)
		return failure.Nodes[2].Verdict == redlatch.VoteNotOurs
	})
	nodes[0].Resume()
	locktest.Await(t, "all have it", func() bool {
		return lock.Extend(t.Context(), locktest.TTL) == nil && locktest.Value(t, nodes[2], "job") != ""
	})
	nodes[0].Pause()
	locktest.Await(t, "the others extend it", func() bool { return lock.Extend(t.Context(), locktest.TTL) == nil })
	nodes[0].Resume()
	if !strings.Contains(restartsPage(t), "counts as away for that lock") {
		t.Error("the page does not say so")
	}
}
