// Package admission decides whether a node may vote: pure rules, from what was seen of the
// node to a decision. Nothing is sent here.
//
// A node may have forgotten locks that it gave away: it restarted without its last writes,
// took a master's place, or had its keys deleted. Such a node is in quarantine: it does not
// vote before every lock that it may have forgotten has run out. And the clients of a
// deployment must agree about how long that is, so each node records what they agreed on,
// and a client that differs changes nothing and votes nowhere.
package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// MaxMaxTTL bounds an agreement's MaxTTL. A node that restarted stays out for that long, and
// what a node has recorded beyond it was not written by a client.
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

// Quarantine is how long a node stays out that may have forgotten locks: longer than any lock
// that could have been on it, and than any token that could have been proposed before
// (docs/fencing.md, "When a node forgets").
func (a Agreement) Quarantine() time.Duration {
	// rule: quarantine-longer-than-ttl
	return a.MaxTTL + 2*script.Clamp + vote.LongestAttempt
}

// ID is a hash of the agreement: names may hold anything. Every vote reads it, so it is no
// longer than it must be.
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

// ErrInvalid is what the public package calls by the same name.
var ErrInvalid = errors.New("invalid")

// DisagreementError says that a client's settings are not those of its deployment. It wraps
// ErrInvalid. Nothing was changed on the node that said so.
type DisagreementError struct {
	Recorded, Ours Agreement
	// Node is the node that has the record, "" where it is the one that was asked.
	Node string
}

func (e *DisagreementError) Error() string {
	at := "here"
	if e.Node != "" {
		at = "on " + e.Node
	}
	if !slices.Equal(e.Recorded.Nodes, e.Ours.Nodes) {
		return fmt.Sprintf("Nodes: the deployment %q has the nodes [%s] %s, this client names [%s]: "+
			"name the same nodes (a #name at the end of a URL names a node that has several addresses), use another Deployment, "+
			"or change it for all clients with: redlatch deployment set",
			e.Ours.Deployment, printable.Text(strings.Join(e.Recorded.Nodes, " ")), at, strings.Join(e.Ours.Nodes, " "))
	}
	return fmt.Sprintf("the deployment %q has %s %s, this client has %s: set the client's to the same, use another Deployment, "+
		"or change it for all clients with: redlatch deployment set%s",
		e.Ours.Deployment, e.Recorded, at, e.Ours, e.flags())
}

// flags are what has to follow the command for the client's settings.
func (e *DisagreementError) flags() string {
	flags := " --max-ttl " + e.Ours.MaxTTL.String()
	if e.Ours.NoQuarantine {
		flags += " --no-quarantine"
	}
	if e.Ours.Durable {
		flags += " --durable"
	}
	return flags
}

func (e *DisagreementError) Unwrap() error { return ErrInvalid }
