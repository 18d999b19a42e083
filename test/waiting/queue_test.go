package waiting

import (
	"fmt"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// queueKey is the key of the wait queue for a name without braces.
func queueKey(name string) string { return "redlatch:{" + name + "}:queue:" + name }

// ticketsOn returns how many tickets there are in the queues for name on each
// node.
func ticketsOn(t *testing.T, nodes []*redistest.Server, name string) []int {
	t.Helper()
	all := make([]int, len(nodes))
	for i, s := range nodes {
		all[i] = int(locktest.Do(t, s, "ZCARD", queueKey(name)).(int64))
	}
	return all
}

// awaitQueued waits until there are n tickets in the queue for name on one node
// and none elsewhere, and returns that node's index.
func awaitQueued(t *testing.T, nodes []*redistest.Server, name string, n int) (arbiter int) {
	t.Helper()
	locktest.Await(t, fmt.Sprintf("%d are queued for %s", n, name), func() bool {
		total, together := 0, false
		for i, k := range ticketsOn(t, nodes, name) {
			if total += k; k == n {
				arbiter, together = i, true
			}
		}
		return together && total == n
	})
	return arbiter
}

// inTurn expects that pass returns the order want. On a busy machine one may miss its turn, which the next then has:
// then it is done again.
func inTurn(t *testing.T, nodes []*redistest.Server, want string, pass func(try int) (order string)) {
	t.Helper()
	const tries = 20
	late := locktest.WatchLateness(t, nodes...)
	for try := 1; ; try++ {
		late.Take()
		got := pass(try)
		if got == want {
			return
		}
		if by := late.Take(); by <= script.Grace/4 || try == tries {
			t.Errorf("the order was %s, where the machine was late by %v", got, by)
			return
		}
	}
}
