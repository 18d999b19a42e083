//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// sound is a node of which there is nothing to say.
func sound(name string) doctor.Report {
	return doctor.Report{
		Node: name, Latency: 100 * time.Microsecond,
		Server: "valkey", Version: "8.0.1", Role: "master", RunID: name, Uptime: time.Hour,
		Status: doctor.StatusAdmitted, Persistence: "AOF always", Durable: true, Policy: "noeviction",
		ClockKnown: true, ClockError: 50 * time.Microsecond, User: "default",
	}
}

func TestDiagnose(t *testing.T) {
	behind := func(d time.Duration) func(*doctor.Report) {
		return func(n *doctor.Report) { n.ClockOffset = -d }
	}
	down := func(n *doctor.Report) {
		*n = doctor.Report{Node: n.Node, Err: errors.New("not sent: connection refused"), Status: doctor.StatusUnclear}
	}
	waiting := func(n *doctor.Report) {
		n.Status, n.Left, n.Reason = doctor.StatusWaiting, 9*time.Second, errors.New("it started 25s ago")
	}
	loading := func(n *doctor.Report) {
		n.Status, n.Reason = doctor.StatusUnfit, &driver.ServerError{Text: "LOADING Redis is loading the dataset in memory"}
		n.Refusal = n.Reason
	}
	cases := []struct {
		name string
		// nodes is how many there are, 3 by default; change, what is not sound
		// about the first ones.
		nodes  int
		change []func(*doctor.Report)
		doctor doctorCmd
		// forgetful: the nodes are not said to be durable.
		forgetful bool
		exit      int
		// want are the beginnings of all findings as they are printed, in order.
		want []string
	}{
		{name: "all well", exit: 0},
		{name: "one node", nodes: 1, exit: 0, want: []string{"note: one node"}},
		{name: "an even number", nodes: 4, exit: 1, want: []string{"warning: an even number of nodes, 4: a lock takes 3 of them, so 1 may be down, no more than with 3 nodes"}},
		{name: "a minority down", change: []func(*doctor.Report){down}, exit: 1,
			want: []string{"warning: a: it cannot be examined: connection refused"}},
		{name: "a majority down", change: []func(*doctor.Report){down, down}, exit: 2,
			want: []string{"unsafe: only 1 of 3 nodes answer, and a lock takes 2", "warning: a, b: it cannot be examined"}},
		{name: "a minority waits", change: []func(*doctor.Report){waiting}, exit: 1,
			want: []string{"warning: a: it started 25s ago"}},
		{name: "a majority waits", change: []func(*doctor.Report){waiting, waiting}, exit: 1,
			want: []string{"warning: only 1 of 3 nodes vote so far, and a lock takes 2", "warning: a, b: it started"}},
		{name: "loading", change: []func(*doctor.Report){loading, loading}, exit: 1,
			want: []string{"warning: only 1 of 3 nodes vote so far, and a lock takes 2", "warning: a, b: it is loading its data"}},
		{name: "restarts cost a wait", forgetful: true, change: []func(*doctor.Report){
			func(n *doctor.Report) { n.Persistence, n.Durable = "RDB", false },
			func(n *doctor.Report) { n.Persistence, n.Durable = "AOF everysec", false },
			func(n *doctor.Report) { n.Persistence, n.Durable = "unknown", false },
		}, exit: 0, want: []string{
			"note: a: persistence: RDB: it does not vote for 34s after each restart",
			"note: b: persistence: AOF everysec", "note: c: persistence: unknown",
		}},
		{name: "said to be durable, and seen otherwise", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.Persistence, n.Durable = "AOF everysec", false },
			func(n *doctor.Report) { n.Persistence, n.Durable = "unknown", false },
			func(n *doctor.Report) {
				n.Recorded = &doctor.Recorded{Durable: true, Void: "it was seen otherwise"}
			},
		}, exit: 2, want: []string{
			"unsafe: a: --durable says that it is durable, but it may forget what it answered (persistence: AOF everysec;",
			"warning: b: this user may not read its settings", "warning: c: clients do not believe --durable any more: it was seen otherwise",
		}},
		{name: "said to be durable, with replicas", change: []func(*doctor.Report){func(n *doctor.Report) { n.Replicas = 2 }}, exit: 1,
			want: []string{"warning: a: replicas: 2, but --durable says that none ever takes its place"}},
		{name: "replicas of one that is not", forgetful: true, change: []func(*doctor.Report){func(n *doctor.Report) { n.Replicas = 2 }},
			want: []string{"note: a, b, c: persistence: AOF always"}},
		{name: "other settings", change: []func(*doctor.Report){
			func(n *doctor.Report) {
				n.Status, n.Reason = doctor.StatusUnfit, &admission.DisagreementError{
					Recorded: admission.Agreement{MaxTTL: time.Minute}, Ours: admission.Agreement{MaxTTL: 30 * time.Second, Durable: true}}
			},
		}, exit: 2, want: []string{`unsafe: a: the deployment "default" has MaxTTL 1m0s there, but these settings are MaxTTL 30s, durable: it does not vote`}},
		{name: "a key of the deployment that is of another type", change: []func(*doctor.Report){
			func(n *doctor.Report) {
				n.Unreadable = errors.New("the key is a list")
				n.Status, n.Reason = doctor.StatusUnfit, n.Unreadable
			},
		}, exit: 2, want: []string{"unsafe: a: it does not vote: the key is a list"}},
		{name: "keys that no client has written", change: []func(*doctor.Report){
			func(n *doctor.Report) {
				n.ForeignKeys = []doctor.ForeignKey{{Key: "next", Problem: "it is a list"}, {Key: "token", Problem: "it is a list", Blocks: true}}
			},
		}, exit: 2, want: []string{`unsafe: a: the key "token": it is a list: the lock cannot be acquired there`, `warning: a: the key "next": it is a list: clients ignore`}},
		{name: "no quarantine, kept on disk", doctor: doctorCmd{connection: connection{NoQuarantine: true}}, exit: 1,
			want: []string{"warning: the quarantine is off"}},
		{name: "no quarantine, forgetful", change: []func(*doctor.Report){func(n *doctor.Report) { n.Durable = false }},
			doctor: doctorCmd{connection: connection{NoQuarantine: true}}, exit: 2, want: []string{"unsafe: the quarantine is off"}},
		{name: "no quarantine, kept on disk, with a replica", change: []func(*doctor.Report){func(n *doctor.Report) { n.Replicas = 1 }},
			doctor: doctorCmd{connection: connection{NoQuarantine: true}}, exit: 2, want: []string{"unsafe: the quarantine is off"}},
		{name: "too few replicas", nodes: 1, forgetful: true, change: []func(*doctor.Report){func(n *doctor.Report) { n.Replicas = 1 }},
			doctor: doctorCmd{connection: connection{Replicas: 2}}, exit: 2, want: []string{
				"unsafe: a: replicas: 1, but --replicas says that 2 must acknowledge", "note: one node", "note: a: persistence"}},
		{name: "fsync without a file that is written at once", nodes: 1, forgetful: true, change: []func(*doctor.Report){func(n *doctor.Report) { n.Persistence = "AOF everysec and RDB" }},
			doctor: doctorCmd{connection: connection{Fsync: true}}, exit: 1, want: []string{
				"warning: a: persistence: AOF everysec and RDB, but --fsync waits for its disk: many of its votes come too late to count", "note: one node", "note: a: persistence"}},
		{name: "a replica", change: []func(*doctor.Report){func(n *doctor.Report) { n.Role, n.Status = "slave", doctor.StatusUnfit }},
			exit: 2, want: []string{"unsafe: a: it is a replica"}},
		{name: "one server twice", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.Status, n.Reason = doctor.StatusUnfit, errors.New("twice") },
			func(n *doctor.Report) { n.Status, n.SameAs = doctor.StatusUnfit, "a" },
		}, exit: 2, want: []string{"unsafe: only 1 of 3 nodes vote", "unsafe: b: it is the same server as a"}},
		{name: "another set", change: []func(*doctor.Report){
			func(n *doctor.Report) {
				n.Status, n.OtherSet, n.Reason = doctor.StatusUnfit, []string{"x", "y"}, &admission.DisagreementError{Recorded: admission.Agreement{Nodes: []string{"x", "y"}}}
			},
		}, exit: 2, want: []string{`unsafe: a: the deployment "default" has the nodes [x y] there`}},
		{name: "too old", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.Status, n.Reason = doctor.StatusUnfit, errors.New("use Redis 7.0") },
		}, exit: 2, want: []string{"unsafe: a: it does not vote: use Redis 7.0"}},
		{name: "evicting", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.Evicting, n.MaxMemory, n.Policy = true, 3<<29, "allkeys-lru" },
		}, exit: 2, want: []string{"unsafe: a: it may delete locks to make room (maxmemory 1.5G, allkeys-lru)"}},
		{name: "refuses writes", change: []func(*doctor.Report){func(n *doctor.Report) { n.Refusal = errors.New("MISCONF disk") }},
			exit: 2, want: []string{"unsafe: a: it refuses harmless commands, and would refuse locks: MISCONF disk"}},
		{name: "a majority refuses writes", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.Refusal = errors.New("OOM") },
			func(n *doctor.Report) { waiting(n); n.Refusal = errors.New("OOM") },
		}, exit: 2, want: []string{"unsafe: only 1 of 3 nodes vote, and a lock takes 2: no lock can be acquired, and waiting does not help",
			"unsafe: a, b: it refuses harmless commands", "warning: b: it started 25s ago"}},
		{name: "slow", change: []func(*doctor.Report){func(n *doctor.Report) { n.Latency = 30 * time.Millisecond }},
			exit: 1, want: []string{"warning: a: a round trip takes 30ms of the 50ms"}},
		{name: "slow for one, and patient clients", change: []func(*doctor.Report){func(n *doctor.Report) { n.Latency = 30 * time.Millisecond }},
			doctor: doctorCmd{connection: connection{NodeTimeout: 300 * time.Millisecond}}},
		{name: "permissions", change: []func(*doctor.Report){
			func(n *doctor.Report) {
				n.Status, n.Reason, n.User, n.Missing = doctor.StatusUnfit, errors.New("NOPERM"), "app", []string{"+eval", "~redlatch:*"}
			},
		}, exit: 2, want: []string{"unsafe: a: the user app lacks +eval ~redlatch:*"}},
		{name: "permissions to be called", change: []func(*doctor.Report){
			func(n *doctor.Report) {
				n.User, n.Missing = "app", []string{"&redlatch:wake:*", "+publish", "+subscribe"}
			},
		}, exit: 1, want: []string{"warning: a: the user app lacks &redlatch:wake:* +publish +subscribe: clients that wait"}},
		{name: "permissions for a second connection", nodes: 1, change: []func(*doctor.Report){
			func(n *doctor.Report) { n.User, n.Missing = "app", []string{"+client|kill"} },
		}, exit: 0, want: []string{"note: one node", "note: a: the user app lacks +client|kill: clients have no second connection"}},
		{name: "permissions for a second connection, and others", nodes: 1, change: []func(*doctor.Report){
			func(n *doctor.Report) { n.User, n.Missing = "app", []string{"+client|kill", "+publish"} },
		}, exit: 1, want: []string{"warning: a: the user app lacks +publish: clients that wait", "note: one node", "note: a: the user app lacks +client|kill:"}},
		{name: "permissions for a second connection, and unfit", nodes: 1, change: []func(*doctor.Report){
			func(n *doctor.Report) {
				n.User, n.Missing, n.Status, n.Reason = "app", []string{"+client|kill"}, doctor.StatusUnfit, errors.New("use Redis 7.0")
			},
		}, exit: 2, want: []string{"unsafe: only 0 of 1 nodes vote", "unsafe: a: it does not vote: use Redis 7.0", "note: one node", "note: a: the user app lacks +client|kill:"}},
		{name: "a key that may not matter", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.User, n.Missing = "app", []string{"~l:redlatch-doctor"} },
		}, doctor: doctorCmd{connection: connection{KeyTemplate: "l:{name}"}}, exit: 1, want: []string{"warning: a: the user app may not use the key l:redlatch-doctor"}},
		{name: "a key that may not matter, and a command", nodes: 1, change: []func(*doctor.Report){
			func(n *doctor.Report) { n.User, n.Missing = "app", []string{"+del", "~redlatch-doctor"} },
		}, exit: 2, want: []string{"unsafe: a: the user app lacks +del", "warning: a: the user app may not use the key redlatch-doctor", "note: one node"}},
		{name: "a key that matters", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.User, n.Missing = "app", []string{"~job"} },
		}, doctor: doctorCmd{Lock: []string{"job"}}, exit: 2, want: []string{"unsafe: a: the user app lacks ~job"}},
		{name: "clocks within a lock's drift", change: []func(*doctor.Report){behind(102 * time.Millisecond), behind(-102 * time.Millisecond)}},
		{name: "a clock that is behind", change: []func(*doctor.Report){behind(103 * time.Millisecond)}, exit: 1,
			want: []string{"warning: a: its wall clock is 103ms behind: when it is set forward, locks on it end early"}},
		{name: "a measurement too coarse to tell", change: []func(*doctor.Report){func(n *doctor.Report) {
			n.ClockOffset, n.ClockError = 200*time.Millisecond, 150*time.Millisecond
		}}},
		{name: "a clock that costs round trips", change: []func(*doctor.Report){behind(-2 * time.Second)}, exit: 1,
			want: []string{"warning: a: its wall clock is 2s ahead (beyond 1s, nodes disagree about fencing tokens"}},
		{name: "this machine's clock", change: []func(*doctor.Report){behind(time.Minute), behind(time.Minute), behind(59 * time.Second)}, exit: 1,
			want: []string{"warning: this machine's wall clock is 1m0s ahead, by the clocks of 2 of 3 nodes", "warning: c: its wall clock is 1s ahead"}},
		{name: "the worst first", change: []func(*doctor.Report){
			func(n *doctor.Report) { n.Missing = []string{"+client|kill"} },
			waiting,
			func(n *doctor.Report) { n.Evicting, n.Policy = true, "allkeys-lfu" },
		}, exit: 2, want: []string{"unsafe: c:", "warning: b:", "note: a:"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var reports []doctor.Report
			for i := range cmp.Or(c.nodes, 3) {
				node := sound(string(rune('a' + i)))
				if i < len(c.change) {
					c.change[i](&node)
				}
				reports = append(reports, node)
			}
			c.doctor.Durable = !c.forgetful && !c.doctor.NoQuarantine
			c.doctor.Deployment, c.doctor.MaxTTL, c.doctor.Nodes = "default", 30*time.Second, []string{"redis://a"}
			found := c.doctor.diagnose(reports)
			if code := exitCode(found); code != c.exit {
				t.Errorf("exit code %d, want %d", code, c.exit)
			}
			var got []string
			for _, one := range found {
				text := one.severity.String() + ": "
				if len(one.nodes) > 0 {
					text += strings.Join(one.nodes, ", ") + ": "
				}
				got = append(got, text+one.text)
				if one.remedy == "" && !strings.Contains(one.text, "it does not vote") {
					t.Errorf("%q has no remedy", one.text)
				}
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}

			// What is printed has it all, whatever is not known of a node.
			var table, object bytes.Buffer
			if err := errors.Join(writeTable(&table, reports, found), writeJSON(&object, reports, found)); err != nil {
				t.Fatal(err)
			}
			var parsed struct {
				Nodes, Findings []any
				Exit            int
			}
			if err := json.Unmarshal(object.Bytes(), &parsed); err != nil || len(parsed.Nodes) != len(reports) || len(parsed.Findings) != len(found) || parsed.Exit != c.exit {
				t.Errorf("JSON: %v\n%s", err, object.String())
			}
			for _, one := range found {
				if !strings.Contains(table.String(), one.text) || !strings.Contains(table.String(), one.remedy) {
					t.Errorf("%q is not in\n%s", one.text, table.String())
				}
			}
		})
	}
}

// A server that has answered need not be looked for.
func TestRemedyOfARefusal(t *testing.T) {
	node := doctor.Report{Node: "a", Status: doctor.StatusUnclear, Err: &driver.ServerError{Text: "ERR max number of clients reached"}}
	for _, one := range new(doctorCmd).diagnose([]doctor.Report{node}) {
		if len(one.nodes) > 0 && one.remedy != "mend what the server reports" {
			t.Errorf("%s: %s", one.text, one.remedy)
		}
	}
}

// A Cluster that has no slots or is none can be reached: to look for it is no remedy.
func TestRemedyOfAnUnfitCluster(t *testing.T) {
	t.Parallel()
	for what, options := range map[string]redistest.Options{
		"the server is not part of a Cluster": {}, "no master of the Cluster has a slot yet: give each slot a master": {Args: []string{"--cluster-enabled", "yes"}},
	} {
		server, err := redistest.Start(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		reports, err := doctor.Examine(t.Context(), redlatch.Config{Nodes: []string{server.URL() + "?cluster"}})
		if err != nil {
			t.Fatal(err)
		}
		var f findings
		new(doctorCmd).diagnoseUnreached(&f, reports[0], "check that it runs")
		if !strings.Contains(f[0].text, what) || f[0].remedy != "" {
			t.Errorf("%s: %q", f[0].text, f[0].remedy)
		}
	}
}

// A node that refuses what locks need does not vote, whatever its quarantine says.
func TestVotesOfARefusal(t *testing.T) {
	node, cluster := sound("a"), soundCluster("b")
	node.Refusal = errors.New("OOM")
	cluster.Cluster.Masters[1].Refusal = node.Refusal
	for _, cells := range [][]string{row(node), clusterRow(cluster)} {
		if cells[6] != "no" {
			t.Errorf("%q", cells)
		}
	}
	node.Refusal = nil
	if votes := row(node)[6]; votes != "yes" {
		t.Errorf("%q", votes)
	}
}

// Where nothing is recorded yet, nothing is to be recorded anew.
func TestRemedyOfDurable(t *testing.T) {
	for _, recorded := range []*doctor.Recorded{nil, {Durable: true}} {
		node := sound("a")
		node.Durable, node.Persistence, node.Recorded = false, "AOF everysec", recorded
		d := doctorCmd{}
		d.Durable = true
		for _, one := range d.diagnose([]doctor.Report{node}) {
			if one.severity == danger && strings.Contains(one.remedy, "anew") != (recorded != nil) {
				t.Errorf("recorded %+v: %s", recorded, one.remedy)
			}
		}
	}
}

func TestAge(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "59s": 59 * time.Second, "1m0s": time.Minute, "2h3m": 2*time.Hour + 3*time.Minute + 4*time.Second, "10d5h": 245 * time.Hour} {
		if got := age(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

// An operator at a terminal is asked, and only yes is yes.
func TestResetAsks(t *testing.T) {
	t.Parallel()
	for answer, outcome := range map[string]string{"yes": `was reset`, "y": "nothing was reset"} {
		k := onTerminal(t, "sh", "-c", `redlatch admit --reset "$REDLATCH_NODES"`)
		k.sees("first stop every client")
		k.sees("type yes when these clients are stopped: ")
		k.keys(answer + "\n")
		k.sees(outcome)
	}
}

// So is one who changes a deployment, and nothing else changes it.
func TestDeploymentSetAsks(t *testing.T) {
	t.Parallel()
	for answer, outcome := range map[string]string{"yes": `has MaxTTL 1m0s`, "y": "nothing was changed"} {
		k := onTerminal(t, "sh", "-c", `redlatch deployment set --no-quarantine=false --max-ttl 1m`)
		k.sees("clients with the old settings are refused")
		k.sees("type yes to change the deployment: ")
		k.keys(answer + "\n")
		k.sees(outcome)
	}
}

// What is said of restarting one node after the other leaves time for the one before to vote again, and for
// held locks to be extended there.
func TestTimeBetweenRestarts(t *testing.T) {
	d := doctorCmd{}
	d.Deployment, d.MaxTTL = "default", 30*time.Second
	var f findings
	d.diagnoseRestart(&f, sound("a"), false)
	d.diagnoseFailover(&f, sound("a"), false)
	if len(f) != 2 {
		t.Fatalf("%+v", f)
	}
	for _, one := range f {
		if !strings.Contains(one.remedy, " 1m4s apart") {
			t.Errorf("%q", one.remedy)
		}
	}
	f = nil
	d.diagnoseRestart(&f, sound("a"), true)
	if len(f) != 1 || !strings.HasPrefix(f[0].remedy, "restart it when no lock is held, and vouch for it then: redlatch admit a; ") {
		t.Errorf("there is no other node to wait for: %+v", f)
	}
}
