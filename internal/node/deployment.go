package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/script"
)

// LongestAttempt bounds the time from an attempt's start to the last answer it
// uses. The quarantine rests on it: a proposed counter is at most this old.
const LongestAttempt = 2 * time.Second

// Deployment is what the clients of one set of nodes must agree on.
type Deployment struct {
	Name   string
	MaxTTL time.Duration
	// Fenced keeps nodes out that may have forgotten locks.
	Fenced bool
	// Strict keeps out nodes that may evict locks.
	Strict bool
}

// Quarantine is how long a node that may have forgotten stays out: longer than
// any lock that could have been on it, and than any token that could have been
// proposed before (FENCING.md, "When a node forgets").
func (d Deployment) Quarantine() time.Duration {
	return d.MaxTTL + 2*script.Clamp + LongestAttempt
}

// agreement is the part of the voting script's text that differs between
// clients that do not agree: a hash, since names may hold anything, and no longer
// than it must be, since every acquisition reads it. names is the set of nodes as
// recorded.
func (d Deployment) agreement(names []string) string {
	terms := fmt.Sprintf("%q %d %t %q", d.Name, d.MaxTTL.Milliseconds(), d.Fenced, names)
	sum := sha256.Sum256([]byte(terms))
	return hex.EncodeToString(sum[:16])
}

// record is what a node keeps of the deployment it was admitted to.
type record struct {
	// Run is the server process that was admitted. A script looks for it in
	// the text.
	Run string `json:"run"`
	// Reign is the replication id that the run had then: a master that was made a
	// replica and a master again has another, and may have lost what it granted.
	Reign string `json:"reign,omitempty"`
	// Vouched is the run an operator spoke for.
	Vouched string `json:"vouched,omitempty"`
	// Nodes maps each node's name to the run last seen behind it, "" if none.
	Nodes    map[string]string `json:"nodes"`
	MaxTTLMS int64             `json:"max_ttl_ms"`
	// Replicated: the node was once seen with a replica.
	Replicated bool `json:"replicated,omitempty"`
}

func parseRecord(text string) (*record, error) {
	if text == "" {
		return nil, nil
	}
	r := new(record)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("the deployment record %q is not ours: %w", text, err)
	}
	return r, nil
}

func (r *record) text() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(text)
}

func sortedNames(nodes map[string]string) []string {
	names := make([]string, 0, len(nodes))
	for name := range nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// OtherSetError says that a node belongs to a deployment of other nodes. Two
// sets have quorums that need not meet.
type OtherSetError struct {
	Deployment     string
	Recorded, Ours []string
}

func (e *OtherSetError) Error() string {
	return fmt.Sprintf("Nodes: the deployment %q has the nodes [%s] here, this client names [%s]; "+
		"name the same nodes (a #name at the end of a URL names a node that has several addresses), use another Deployment, or reset this one",
		e.Deployment, printable.Text(strings.Join(e.Recorded, " ")), strings.Join(e.Ours, " "))
}

// reconcile returns the names that stand for the node set in the agreement:
// those recorded on the node, when they mean the same servers as ours.
func (d Deployment) reconcile(r *record, census *Census) ([]string, error) {
	members := census.members()
	ours := sortedNames(members)
	if r == nil {
		return ours, nil
	}
	recorded := sortedNames(r.Nodes)
	if slices.Equal(ours, recorded) {
		return recorded, nil
	}
	other := &OtherSetError{Deployment: d.Name, Recorded: recorded, Ours: ours}
	switch known, unknown := compareRuns(r.Nodes, members); {
	case known == len(ours):
		return recorded, nil
	case known+unknown == len(ours):
		return nil, fmt.Errorf("%w: %w", ErrUnseen, other)
	}
	return nil, other
}

// ErrUnseen says that two node sets may be one under two names, which will be
// known once all nodes were reached.
var ErrUnseen = errors.New("not all nodes have been reached yet")

// compareRuns counts how many of our nodes are known to be recorded ones, by the
// run behind them, and how many were never reached: behind proxies and address
// translation the same servers have several names. Both are 0 where the sets
// differ in size.
func compareRuns(recorded, ours map[string]string) (known, unknown int) {
	if len(recorded) != len(ours) {
		return 0, 0
	}
	runs := make(map[string]bool)
	for _, run := range recorded {
		runs[run] = true
	}
	for _, run := range ours {
		switch {
		case run == "":
			unknown++
		case runs[run]:
			known++
			delete(runs, run) // each stands for one node
		}
	}
	return known, unknown
}
