//go:build unix

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
)

// soundCluster is a Cluster of three masters, each with a replica, of which there is nothing to
// say but what a failover costs.
func soundCluster(name string) doctor.Report {
	node := doctor.Report{Node: name, Status: doctor.StatusAdmissible, Replicas: 3, Cluster: new(doctor.Cluster)}
	for i, slots := range []doctor.SlotRange{{First: 0, Last: 5460}, {First: 5461, Last: 10922}, {First: 10923, Last: doctor.ClusterSlots - 1}} {
		m := doctor.Master{Report: sound(fmt.Sprint(name, i+1)), Slots: []doctor.SlotRange{slots}, State: "ok"}
		m.Status, m.Replicas = doctor.StatusAdmissible, 1
		node.Cluster.Masters = append(node.Cluster.Masters, m)
	}
	return node
}

func TestDiagnoseClusters(t *testing.T) {
	type change = map[string]func(*doctor.Master)
	down := func(m *doctor.Master) {
		m.Report = doctor.Report{Node: m.Node, Err: errors.New("not sent: connection refused"), Status: doctor.StatusUnclear}
	}
	waiting := func(m *doctor.Master) {
		m.Status, m.Left, m.Reason = doctor.StatusWaiting, 9*time.Second, errors.New("its master was promoted")
	}
	other := func(m *doctor.Master) {
		m.Status, m.Reason = doctor.StatusUnfit, &admission.DisagreementError{
			Recorded: admission.Agreement{MaxTTL: time.Minute}, Ours: admission.Agreement{MaxTTL: 30 * time.Second}}
	}
	const quiet = "note: a: persistence: AOF always, replicas: 1: after a restart of this master, or when a replica takes its place, locks may be missing, so nobody gets a lock in its slots for 34s"
	cases := []struct {
		name string
		// nodes are Clusters, a by default; change is what is not sound about masters.
		nodes  string
		change change
		doctor doctorCmd
		exit   int
		// want are the beginnings of all findings as they are printed, in order.
		want []string
	}{
		{name: "all well", want: []string{quiet}},
		{name: "three", nodes: "abc", want: []string{"note: a, b, c: persistence: AOF always, replicas: 1"}},
		{name: "without replicas", change: change{"a2": func(m *doctor.Master) { m.Replicas = 0 }}, want: []string{
			"note: a1, a3: persistence: AOF always, replicas: 1", "note: a2: persistence: AOF always, no replica: while it is down, and for 34s after that"}},
		{name: "one down", change: change{"a2": down}, exit: 2, want: []string{
			"unsafe: only 0 of 1 nodes answer for the names in 5462 of 16384 slots, and a lock takes 1", "warning: a2: it cannot be examined: connection refused", "note: a1, a3:"}},
		{name: "one waits", change: change{"a1": waiting}, exit: 1, want: []string{
			"warning: only 0 of 1 nodes vote so far for the names in 5461 of 16384 slots", "warning: a1: its master was promoted", "note: a:"}},
		{name: "all wait", change: change{"a1": waiting, "a2": waiting, "a3": waiting}, exit: 1, want: []string{
			"warning: only 0 of 1 nodes vote so far, and a lock takes 1", "warning: a: its master was promoted", "note: a:"}},
		{name: "of three, shards of different slots", nodes: "abc", change: change{"a1": down, "b2": down}, exit: 1, want: []string{
			"warning: a1, b2: it cannot be examined", "note: a2, a3, b1, b3, c: persistence"}},
		{name: "of three, shards of one slot", nodes: "abc", change: change{"a1": down, "b1": waiting}, exit: 1, want: []string{
			"warning: only 1 of 3 nodes vote so far for the names in 5461 of 16384 slots, and a lock takes 2", "warning: a1: it cannot", "warning: b1: its master", "note: a2, a3, b, c:"}},
		{name: "a state", change: change{"a3": func(m *doctor.Master) {
			m.State, m.Status, m.Reason, m.Refusal = "fail", doctor.StatusUnfit, errors.New("CLUSTERDOWN"), errors.New("CLUSTERDOWN")
		}}, exit: 2, want: []string{"unsafe: only 0 of 1 nodes vote for the names in 5461 of 16384 slots", "unsafe: a3: its cluster_state is fail: it refuses all locks", "note: a:"}},
		{name: "slots without a master", change: change{"a3": func(m *doctor.Master) { m.Slots[0].Last -= 10 }}, exit: 2, want: []string{
			"unsafe: only 0 of 1 nodes answer for the names in 10 of 16384 slots", "unsafe: a: 10 of the 16384 slots have no master", "note: a:"}},
		{name: "other settings", change: change{"a1": other, "a2": other, "a3": other}, exit: 2, want: []string{
			"unsafe: only 0 of 1 nodes vote, and a lock takes 1", `unsafe: a: the deployment "default" has MaxTTL 1m0s there, but these settings are MaxTTL 30s`, "note: a:"}},
		{name: "a replica by now", change: change{"a1": func(m *doctor.Master) { m.Role = "slave" }}, exit: 1, want: []string{
			"warning: a1: it was a master a moment ago", "note: a2, a3:"}},
		{name: "evicting, slow, not permitted", change: change{
			"a1": func(m *doctor.Master) { m.Evicting, m.MaxMemory, m.Policy = true, 1<<20, "allkeys-lru" },
			"a2": func(m *doctor.Master) { m.Latency = 30 * time.Millisecond },
			"a3": func(m *doctor.Master) { m.User, m.Missing = "app", []string{"+spublish"} },
		}, exit: 2, want: []string{
			"unsafe: a1: it may delete locks", "warning: a2: a round trip takes 30ms of the 50ms", "warning: a3: the user app lacks +spublish: clients that wait", "note: a:"}},
		{name: "a clock", change: change{"a2": func(m *doctor.Master) { m.ClockOffset = -103 * time.Millisecond }}, exit: 1, want: []string{
			"warning: a2: its wall clock is 103ms behind", "note: a:"}},
		{name: "one Cluster twice", nodes: "abc", change: change{
			"a1": other, "b1": func(m *doctor.Master) { m.SameAs = "a" }, "b2": func(m *doctor.Master) { m.SameAs = "a" }, "b3": func(m *doctor.Master) { m.SameAs = "a" },
		}, exit: 2, want: []string{"unsafe: b: it is the same server as a", "note: a, b, c:"}},
		{name: "no quarantine", doctor: doctorCmd{connection: connection{NoQuarantine: true}}, exit: 2, want: []string{
			"unsafe: the quarantine is off", "unsafe: a: a replica that takes its place may lack locks, and can give them to second holders at once"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var reports []doctor.Report
			for name := range strings.SplitSeq(cmp.Or(c.nodes, "a"), "") {
				node := soundCluster(name)
				for i := range node.Cluster.Masters {
					m := &node.Cluster.Masters[i]
					if change, ok := c.change[m.Node]; ok {
						change(m)
					}
					for _, r := range m.Slots {
						node.Cluster.Unserved -= r.Len()
					}
				}
				node.Cluster.Unserved += doctor.ClusterSlots
				reports = append(reports, node)
			}
			c.doctor.Deployment, c.doctor.MaxTTL, c.doctor.Nodes = "default", 30*time.Second, []string{"redis://a?cluster"}
			found := c.doctor.diagnose(reports)
			var got []string
			for _, one := range found {
				about := ""
				if len(one.nodes) > 0 {
					about = strings.Join(one.nodes, ", ") + ": "
				}
				got = append(got, one.severity.String()+": "+about+one.text)
				if strings.Contains(one.remedy, "redlatch deployment set") {
					t.Errorf("redlatch deployment set, which refuses a Cluster, is the remedy for: %s", one.text)
				}
			}
			bad := exitCode(found) != c.exit || len(got) != len(c.want)
			for i := 0; !bad && i < len(got); i++ {
				bad = !strings.HasPrefix(got[i], c.want[i])
			}
			if bad {
				t.Errorf("exit %d, want %d, and\n%s\nwant\n%s", exitCode(found), c.exit, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}
