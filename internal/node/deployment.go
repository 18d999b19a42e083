package node

import (
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
)

// Deployment is what the clients of one set of nodes must agree on, and what this client alone
// demands of the nodes.
type Deployment struct {
	Name   string
	MaxTTL time.Duration
	// NoQuarantine lets nodes that may have forgotten locks vote at once. Durable is the operator's
	// word that no node forgets any.
	NoQuarantine, Durable bool
	// Strict keeps out nodes that may evict locks. Clients need not agree on it.
	Strict bool
}

// agreement returns the agreement of clients that give the nodes these names.
func (d Deployment) agreement(names []string) admission.Agreement {
	return admission.Agreement{Deployment: d.Name, Nodes: names, MaxTTL: d.MaxTTL, NoQuarantine: d.NoQuarantine, Durable: d.Durable}
}

// Quarantine returns how long a node that may have forgotten locks stays out.
func (d Deployment) Quarantine() time.Duration { return d.agreement(nil).Quarantine() }

// named returns the names that stand for the client's nodes in the agreement: those recorded on a
// node, if they mean the same servers. The error is ErrUnseen where that is not known yet.
func (d Deployment) named(r *admission.Record, census *Census) ([]string, error) {
	members := census.members()
	ours := admission.Names(members)
	if r == nil {
		return ours, nil
	}
	recorded := admission.Names(r.Nodes)
	if slices.Equal(ours, recorded) {
		return ours, nil
	}
	switch known, unknown := compareRuns(r.Nodes, members); {
	case known == len(ours):
		return recorded, nil
	case known+unknown == len(ours):
		return nil, ErrUnseen
	}
	return ours, nil
}

// ErrUnseen says that two node sets may be the same under different names, which will be known once
// all nodes were reached.
var ErrUnseen = errors.New("the deployment names its nodes otherwise, and not all have been reached yet that would tell whether they are the same")

// compareRuns counts how many of our nodes are known to be recorded ones, by the run behind them,
// and how many were never reached. Behind proxies and address translation the same servers have
// several names. Both counts are 0 where the sets differ in size.
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

// mergeRuns keeps the recorded names and brings their runs up to date.
func mergeRuns(recorded, seen map[string]string) map[string]string {
	merged := make(map[string]string, len(recorded))
	for name, run := range recorded {
		if fresh := seen[name]; fresh != "" {
			run = fresh
		}
		merged[name] = run
	}
	return merged
}
