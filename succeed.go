package redlatch

import (
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// succeed has a call hold the keys of another that has its label: the holder id has the first
// holder's.
func succeed(next waitqueue.Caller, before *quorum.Lease) *quorum.Lease {
	c := next.(*call)
	if c.several != nil || parseHolder(before.ID()).Label != c.settings.label {
		return nil
	}
	lease, _ := before.Succeed(c.settings.firstTTL)
	return lease
}
