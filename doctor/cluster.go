package doctor

import (
	"cmp"
	"fmt"

	"github.com/redlatch/redlatch/internal/node"
)

// Cluster is what was seen of a node that is a whole Redis Cluster.
type Cluster struct {
	// Masters are the masters that have slots. In their reports, Node is the address that the
	// Cluster gives its clients, and Status is that of names that nobody has used before, in those
	// of the master's slots that wait for the longest.
	Masters []Master
	// Unserved is how many slots no master has. The names in them cannot be locked.
	Unserved int
}

// Master is a master of a Cluster.
type Master struct {
	Report
	// Slots are the slots that it has, in order.
	Slots []SlotRange
	// State is its cluster_state, such as "ok" or "fail"; "" where CLUSTER INFO is not permitted.
	State string
}

// SlotRange is the slots from First to Last.
type SlotRange struct{ First, Last int }

// Len returns the number of slots in r.
func (r SlotRange) Len() int { return r.Last - r.First + 1 }

// ClusterSlots is the number of slots of a Cluster.
const ClusterSlots = 16384

// rank orders statuses from best to worst.
var rank = map[Status]int{StatusAdmitted: 0, StatusAdmissible: 1, StatusWaiting: 2, StatusUnclear: 3, StatusUnfit: 4}

// reportCluster returns the Report of a Cluster: what holds for the whole is the worst of its
// masters'.
func reportCluster(name, user string, x *node.ClusterExamination) Report {
	r := Report{Node: name, Cluster: new(Cluster)}
	if x.Err != nil {
		r.Err, r.Reason = x.Err, x.Err
		return r
	}
	r.Status, r.Durable, r.Cluster.Unserved = StatusAdmitted, true, ClusterSlots
	for _, found := range x.Masters {
		m := Master{Report: report(found.Address, found.Examination, found.Record), State: found.State}
		for _, s := range found.Slots {
			slots := SlotRange{int(s.First), int(s.Last)}
			m.Slots = append(m.Slots, slots)
			r.Cluster.Unserved -= slots.Len()
		}
		if m.Err == nil {
			m.User = cmp.Or(m.User, user, "default")
			r.User = cmp.Or(r.User, m.User)
		}
		r.Durable = r.Durable && m.Durable && m.Replicas == 0 // a replica may take its place
		r.Replicas += m.Replicas
		r.Evicting = r.Evicting || m.Evicting
		r.Latency, r.Left = max(r.Latency, m.Latency), max(r.Left, m.Left)
		if rank[m.Status] > rank[r.Status] {
			r.Status, r.Reason = m.Status, nil
			if m.Reason != nil {
				r.Reason = fmt.Errorf("%s: %w", m.Node, m.Reason)
			}
		}
		r.Unreadable = cmp.Or(r.Unreadable, m.Unreadable)
		if m.Recorded != nil && (r.Recorded == nil || worse(m.Recorded, r.Recorded)) {
			r.Recorded = m.Recorded
		}
		r.Cluster.Masters = append(r.Cluster.Masters, m)
	}
	return r
}

// worse reports whether a is further from the Config, or from a vote, than b.
func worse(a, b *Recorded) bool {
	if a.Agrees != b.Agrees {
		return !a.Agrees
	}
	return rank[a.Status] > rank[b.Status]
}
