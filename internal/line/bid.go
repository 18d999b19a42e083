package line

import (
	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/clock"
)

// Bid is an attempt that a release may grant for the asking of whoever releases. It was
// made before Sent, from which its validity counts.
type Bid struct {
	ballot.Claim
	Sent clock.Instant
}

// isBid reports whether a holder is one of the bids, or was when the last attempt was made,
// which may have come to nothing.
func (p *Place) isBid(holder string) bool {
	return holder != "" && (holder == p.bid.ID || holder == p.before.ID || holder == p.given)
}

// Granted returns the bid that the record was granted to, and how, if that is what Await
// ended with. It may be too old to be relied on: an attempt then takes its record over.
func (p *Place) Granted() (b Bid, c ballot.Call, ok bool) {
	return p.bid, p.granted, p.granted.Token > 0
}
