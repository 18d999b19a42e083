package redlatch

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
)

func init() {
	hook.Open = func(config any, around hook.Surroundings) (any, error) {
		c, err := open(config.(Config), around)
		if err != nil {
			return nil, fmt.Errorf("redlatch: %w", err)
		}
		return c, nil
	}
	hook.LeaseOf = func(lockOrContext any) hook.Lease {
		if ctx, ok := lockOrContext.(*lockContext); ok {
			return watched{ctx.lock}
		}
		return watched{lockOrContext.(*Lock)}
	}
}

// watched is a lock with what a judge asks beside.
type watched struct{ *Lock }

func (w watched) HolderID() string        { return w.holder.Lease.ID() }
func (w watched) End() clock.Instant      { return w.until().Add(-w.call.settings.guard) }
func (w watched) Deadline() clock.Instant { return w.until() }
