package redlatch

import (
	"crypto/rand"
	"fmt"
	randv2 "math/rand/v2"
	"time"

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

// completeSurroundings fills in what is this process's own.
func completeSurroundings(s hook.Surroundings) hook.Surroundings {
	if s.Clock == nil {
		s.Clock = clock.System
	}
	if s.Draw == nil {
		s.Draw = randv2.N[time.Duration]
	}
	if s.Random == nil {
		s.Random = func(b []byte) { rand.Read(b) }
	}
	return s
}

// watched is a lock with what a judge asks beside.
type watched struct{ *Lock }

func (w watched) HolderID() string        { return w.lease.ID() }
func (w watched) End() clock.Instant      { return w.until().Add(-w.call.settings.guard) }
func (w watched) Deadline() clock.Instant { return w.until() }
