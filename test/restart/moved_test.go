package restart

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What a deployment has recorded, and the template of the keys, can be changed while programs run: by
// a step between, whose programs take the lock as it was and then as it will be. Programs of
// neighbouring steps exclude each other, also where both kinds of locks are on the same servers.
func TestSettingsAreMoved(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.Nodes(t, 5, redistest.Options{Binary: binary})
		old := locktest.Config(redistest.URLs(servers[:3])...)
		next := locktest.Config(redistest.URLs(servers)...)
		next.Deployment, next.KeyTemplate = "next", "next:{name}"
		next.MaxTTL = 2 * old.MaxTTL
		type program struct{ before, after *redlatch.Client }
		programs := []program{{locktest.Open(t, old), locktest.Open(t, next)}, {locktest.Open(t, old), locktest.Open(t, next)}}
		const name = "job"
		type work = func(ctx context.Context) error
		steps := []func(ctx context.Context, p program, do work) error{
			func(ctx context.Context, p program, do work) error { return p.before.Do(ctx, name, do) },
			func(ctx context.Context, p program, do work) error {
				return p.before.Do(ctx, name, func(ctx context.Context) error { return p.after.Do(ctx, name, do) })
			},
			func(ctx context.Context, p program, do work) error { return p.after.Do(ctx, name, do) },
		}
		var inside, overlaps atomic.Int32
		do := func(context.Context) error {
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			defer inside.Add(-1)
			time.Sleep(2 * time.Millisecond)
			return nil
		}
		for first := range 2 {
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					for range 5 {
						if err := steps[first+i%2](locktest.Within(t, locktest.Patience), programs[i/3], do); err != nil {
							t.Errorf("step %d: %v", first+i%2+1, err)
							return
						}
					}
				})
			}
			all.Wait()
			if n := overlaps.Load(); n > 0 {
				t.Errorf("steps %d and %d: two were there at once, %d times", first+1, first+2, n)
			}
		}
	})
}
