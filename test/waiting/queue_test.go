package waiting

import (
	"fmt"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// lineKey is the key of the line for a name without braces.
func lineKey(name string) string { return "redlatch:{" + name + "}:line:" + name }

// standing returns how many places there are in the lines for name on each
// node.
func standing(t *testing.T, nodes []*redistest.Server, name string) []int {
	t.Helper()
	all := make([]int, len(nodes))
	for i, s := range nodes {
		all[i] = int(locktest.Do(t, s, "ZCARD", lineKey(name)).(int64))
	}
	return all
}

// awaitQueued waits until there are n places in the line for name on one node
// and none elsewhere, and returns that node's index.
func awaitQueued(t *testing.T, nodes []*redistest.Server, name string, n int) (arbiter int) {
	t.Helper()
	locktest.Await(t, fmt.Sprintf("%d stand in the line for %s", n, name), func() bool {
		total := 0
		for i, k := range standing(t, nodes, name) {
			if total += k; k == n {
				arbiter = i
			}
		}
		return total == n
	})
	return arbiter
}
