//go:build !race

package locking

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// A lock that nobody else wants, and its release, make so many allocations at most: 18 on one node and 64 on
// five, where the machine is idle. Where it is busy, more goroutines are made, and steps are repeated: there is
// some room for that, and the least of some runs counts.
func TestAllocations(t *testing.T) {
	for nodes, most := range map[int]float64{1: 20, 5: 72} {
		t.Run(fmt.Sprintf("nodes=%d", nodes), func(t *testing.T) {
			config := redlatch.Config{NoQuarantine: true, Deployment: fmt.Sprint("allocations-", nodes)}
			for _, s := range locktest.Shared(t, nodes) {
				config.Nodes = append(config.Nodes, s.URL())
			}
			client, err := redlatch.Open(config)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithCancel(t.Context()) // which can end, as a caller's mostly can
			defer cancel()
			least := most + 1
			for try := 0; try < 50 && least > most; try++ {
				var failed error
				allocations := testing.AllocsPerRun(100, func() {
					lock, err := client.Lock(ctx, t.Name())
					if err == nil {
						err = lock.Unlock(ctx)
					}
					failed = errors.Join(failed, err)
				})
				if failed != nil {
					t.Log(failed)
					continue
				}
				least = min(least, allocations)
			}
			if least > most {
				t.Errorf("a lock and its release make more than %v allocations", most)
			}
		})
	}
}
