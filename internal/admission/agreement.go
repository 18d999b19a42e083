// Package admission decides whether a node may vote. It consists of pure rules, from what was seen
// of the node to a decision; it sends nothing.
//
// A node may have forgotten locks that it gave away: it restarted without its last writes,
// took a master's place, or had its keys deleted. Such a node is in quarantine: it does not
// vote before every lock that it may have forgotten has run out.
//
// The clients of a deployment must agree about how long that is. So each node records what they
// agreed on, and a client that differs changes nothing and votes nowhere.
package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// MaxMaxTTL bounds an agreement's MaxTTL. A node that restarted stays out for that long, and a
// longer one in a node's record was not written by a client.
const MaxMaxTTL = 24 * time.Hour

// Agreement is what the clients of one deployment must have in common.
type Agreement struct {
	// Deployment is its name, which does not change: another name is another deployment.
	Deployment string
	// Nodes are the names of the nodes, sorted.
	Nodes []string
	// MaxTTL is the longest TTL of a lock, from 1 ms to MaxMaxTTL.
	MaxTTL time.Duration
	// NoQuarantine lets every node vote at once, whatever it may have forgotten.
	NoQuarantine bool
	// Durable is an operator's word that no node ever loses an answered write: each has an
	// append-only file with fsync always, and no replica ever takes its place.
	Durable bool
}

// Quarantine returns how long a node that may have forgotten locks stays out: longer than the
// validity of any lock that could have been on it, and than the age of any token that could have
// been proposed before (docs/fencing.md, "When a node forgets").
func (a Agreement) Quarantine() time.Duration { return Quarantine(a.MaxTTL) }

// Quarantine is Agreement.Quarantine where no lock has a TTL longer than that.
func Quarantine(longest time.Duration) time.Duration {
	// rule: quarantine-longer-than-ttl
	return longest + 2*script.Clamp + vote.LongestAttempt
}

// ID returns a hash of the agreement, because names may hold anything. Every vote reads it, so it
// is as short as it can be.
func (a Agreement) ID() string {
	terms := fmt.Sprintf("%q %q %d %t %t", a.Deployment, a.Nodes, a.MaxTTL.Milliseconds(), a.NoQuarantine, a.Durable)
	sum := sha256.Sum256([]byte(terms))
	return hex.EncodeToString(sum[:16])
}

// String names the terms that clients set.
func (a Agreement) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MaxTTL %v", a.MaxTTL)
	if a.NoQuarantine {
		b.WriteString(", NoQuarantine")
	}
	if a.Durable {
		b.WriteString(", Durable")
	}
	return b.String()
}
