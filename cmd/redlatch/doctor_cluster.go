package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
)

// servers returns the reports of the single servers: in place of a Cluster, those of its masters.
func servers(reports []doctor.Report) []doctor.Report {
	var all []doctor.Report
	for _, node := range reports {
		if node.Cluster == nil {
			all = append(all, node)
			continue
		}
		for _, m := range node.Cluster.Masters {
			all = append(all, m.Report)
		}
	}
	return all
}

// diagnoseCluster looks at a Cluster's masters. A finding that is the same for all masters becomes
// one finding about the Cluster. twice: another node has servers of this Cluster, and has the
// findings about that; alone: there is no other node.
func (d *doctorCmd) diagnoseCluster(f *findings, node doctor.Report, twice, alone bool) {
	var of findings
	for _, m := range node.Cluster.Masters {
		d.diagnoseMaster(&of, node.Node, m, twice, alone)
	}
	if n := node.Cluster.Unserved; n > 0 {
		f.add(danger, node.Node, fmt.Sprintf("%d of the %d slots have no master: names in them cannot be locked, nor can any others with cluster-require-full-coverage yes", n, doctor.ClusterSlots),
			"give each slot a master: if dead masters do not come back, run redis-cli --cluster fix")
	}
	for _, one := range of {
		if len(one.nodes) == len(node.Cluster.Masters) {
			one.nodes = []string{node.Node}
		}
		for _, name := range one.nodes {
			f.add(one.severity, name, one.text, one.remedy)
		}
	}
}

func (d *doctorCmd) diagnoseMaster(f *findings, cluster string, m doctor.Master, twice, alone bool) {
	server := m.Report
	if server.Err != nil {
		d.diagnoseUnreached(f, server, "check that it runs, and that this machine can connect to the address that the Cluster gives for it")
		return
	}
	if m.State != "" && m.State != "ok" {
		f.add(danger, server.Node, fmt.Sprintf("its cluster_state is %s: it refuses all locks", m.State),
			"bring back masters until a majority of them answers and each slot has one; CLUSTER INFO and CLUSTER NODES say what is missing")
		server.Refusal = nil // it says the same
	} else if !twice {
		d.diagnoseMastersVote(f, cluster, server)
	}
	d.diagnoseServer(f, server)
	d.diagnoseFailover(f, server, alone)
	d.diagnoseKeys(f, server)
	d.diagnoseUser(f, server)
}

// diagnoseMastersVote says why a master does not vote.
func (d *doctorCmd) diagnoseMastersVote(f *findings, cluster string, server doctor.Report) {
	disagreement, disagrees := errors.AsType[*admission.DisagreementError](server.Reason)
	switch {
	case d.diagnoseTwice(f, server):
	case server.Role != "" && server.Role != "master":
		f.add(warning, server.Node, "it was a master a moment ago, and is a replica now", "run redlatch doctor again")
	case server.Unreadable != nil:
		d.diagnoseUnreadable(f, server, "when no lock is held in its slots, delete that key")
	case server.Status == doctor.StatusWaiting:
		f.add(warning, server.Node, fmt.Sprintf("%v", server.Reason),
			"wait (if nobody has taken a lock yet, the time runs from the first one on); or for all masters, "+noLock+d.admitCommand(cluster))
	case server.Status == doctor.StatusUnfit && disagrees:
		d.diagnoseMastersRecord(f, server, disagreement)
	case server.Status == doctor.StatusUnfit && len(server.Missing) == 0 && server.Refusal == nil:
		f.add(danger, server.Node, fmt.Sprintf("it does not vote: %v", server.Reason), "")
	}
}

// diagnoseMastersRecord adds the finding about a master that has recorded other settings.
func (d *doctorCmd) diagnoseMastersRecord(f *findings, server doctor.Report, e *admission.DisagreementError) {
	if server.OtherSet != nil {
		f.add(danger, server.Node, fmt.Sprintf("the deployment %q has the nodes [%s] there, but --nodes names others: it does not vote for both sets", d.Deployment, strings.Join(server.OtherSet, " ")), clusterRemedy)
		return
	}
	f.add(danger, server.Node, fmt.Sprintf("the deployment %q has %s there, but these settings are %s: it does not vote for clients with these settings", d.Deployment, termsText(e.Recorded), termsText(e.Ours)), clusterRemedy)
}

// diagnoseFailover says what happens to a master's locks when it dies.
func (d *doctorCmd) diagnoseFailover(f *findings, server doctor.Report, alone bool) {
	if server.Role != "master" {
		return
	}
	out := d.MaxTTL + outOfService
	switch {
	case d.NoQuarantine && server.Replicas > 0:
		f.add(danger, server.Node, "a replica that takes its place may lack locks, and can give them to second holders at once", dropQuarantineOff+anotherDeployment)
	case d.NoQuarantine:
	case server.Replicas > 0:
		f.add(note, server.Node, fmt.Sprintf("persistence: %s, replicas: %d: after a restart of this master, or when a replica takes its place, locks may be missing, so nobody gets a lock in its slots for %s; locks stay safe", server.Persistence, server.Replicas, out),
			"restart one master at a time, "+d.betweenRestarts()+" apart")
	default:
		remedy := "restart one master at a time, " + d.betweenRestarts() + " apart"
		if alone {
			remedy += "; a replica for each master, or three Clusters as nodes, shortens the outage when a master dies"
		}
		f.add(note, server.Node, fmt.Sprintf("persistence: %s, no replica: while it is down, and for %s after that, nobody gets a lock in its slots (in any slot with cluster-require-full-coverage yes); locks stay safe", server.Persistence, out), remedy)
	}
}

// clusterRow is the row of a Cluster in the table. A cell has the worst value among the masters,
// or all their values.
func clusterRow(node doctor.Report) []string {
	masters := node.Cluster.Masters
	answer, uptime := 0, time.Duration(0)
	var versions, keeps, memory, lacks, same []string
	worst, refusal := doctor.Report{}, error(nil)
	for _, m := range masters {
		if m.SameAs != "" {
			same = append(same, m.SameAs)
		}
		if m.Err != nil {
			continue
		}
		answer++
		if uptime == 0 || m.Uptime < uptime {
			uptime = m.Uptime
		}
		versions, keeps, lacks = append(versions, m.Server+" "+m.Version), append(keeps, m.Persistence), append(lacks, m.Missing...)
		if m.MaxMemory > 0 {
			memory = append(memory, size(m.MaxMemory)+" "+m.Policy)
		}
		refusal = cmp.Or(refusal, m.Refusal)
		if m.ClockKnown && (!worst.ClockKnown || m.ClockOffset.Abs() > worst.ClockOffset.Abs()) {
			worst = m.Report
		}
	}
	cells := row(doctor.Report{Node: node.Node, Err: node.Err, Latency: node.Latency, Role: "cluster", Status: node.Status, Left: node.Left, Refusal: refusal,
		ClockKnown: worst.ClockKnown, ClockOffset: worst.ClockOffset, ClockError: worst.ClockError})
	if node.Err == nil {
		cells[1] = fmt.Sprintf("%d of %d", answer, len(masters))
	}
	if answer > 0 {
		cells[5] = age(uptime)
	}
	for i, texts := range map[int][]string{3: versions, 7: keeps, 8: memory, 10: lacks, 11: same} {
		if slices.Sort(texts); len(texts) > 0 {
			cells[i] = oneLine(strings.Join(slices.Compact(texts), ", "))
		}
	}
	return cells
}

// masterJSON is a master of a Cluster in the output of --json.
type masterJSON struct {
	nodeJSON
	Slots [][2]int `json:"slots"`
	State string   `json:"cluster_state,omitempty"`
}

func mastersJSON(node doctor.Report) (masters []masterJSON) {
	for _, m := range node.Cluster.Masters {
		one := masterJSON{nodeJSON: asJSON(m.Report), State: m.State}
		for _, r := range m.Slots {
			one.Slots = append(one.Slots, [2]int{r.First, r.Last})
		}
		masters = append(masters, one)
	}
	return masters
}
