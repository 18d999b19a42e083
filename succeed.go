package redlatch

import (
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// succeed makes a call hold the keys of another call that has the same label, which is part of the
// holder id that both share.
func succeed(next waitqueue.Caller, before *quorum.Lease) *quorum.Lease {
	c := next.(*call)
	if c.several != nil || parseHolder(before.ID()).Label != c.settings.label {
		return nil
	}
	lease, _ := before.Succeed(c.settings.firstTTL)
	return lease
}
