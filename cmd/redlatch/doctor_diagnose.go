package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
)

const (
	// outOfService is how much longer than the longest TTL a quarantine lasts.
	outOfService = 4 * time.Second
	// clamp is the largest distance of a token from a node's clock.
	clamp = time.Second
	// typicalTTL and typicalNodeTimeout are the library's defaults.
	typicalTTL         = 10 * time.Second
	typicalNodeTimeout = 50 * time.Millisecond
)

// diagnose turns the reports into findings, the worst first.
func (d *doctorCmd) diagnose(reports []doctor.Report) findings {
	var f findings
	d.diagnoseSet(&f, reports)
	d.diagnoseClocks(&f, servers(reports))
	twice := make(map[string]bool)
	for _, node := range servers(reports) {
		twice[node.SameAs] = true
	}
	waiting := 0
	for _, node := range reports {
		if node.Status == doctor.StatusWaiting {
			waiting++
		}
	}
	for _, node := range reports {
		if node.Err != nil {
			d.diagnoseUnreached(&f, node, "check that it runs, that this machine can connect to it, and that its URL has the right scheme and password")
			continue
		}
		if node.Cluster != nil {
			d.diagnoseCluster(&f, node, twice[node.Node], len(reports) == 1)
			continue
		}
		d.diagnoseSpeed(&f, &node)
		if !twice[node.Node] { // a finding about the second of the two names has it
			d.diagnoseVote(&f, node, waiting)
		}
		d.diagnoseServer(&f, node)
		d.diagnoseRestart(&f, node, len(reports) == 1)
		d.diagnoseDurable(&f, node)
		d.diagnoseKeys(&f, node)
		d.diagnoseUser(&f, node)
	}
	f.worstFirst()
	return f
}

func (d *doctorCmd) diagnoseUnreached(f *findings, node doctor.Report, otherwise string) {
	if _, answered := errors.AsType[*driver.ServerError](node.Err); answered {
		otherwise = mendReported
	} else if errors.Is(node.Err, admission.ErrUnfit) {
		otherwise = "" // the text says what to do
	}
	f.add(warning, node.Node, "it cannot be examined: "+strings.TrimPrefix(words(node.Err), "not sent: "), cmp.Or(remedy(node.Err), otherwise))
}

// mendReported is the remedy for a refusal of which nobody knows more than its text says.
const mendReported = "mend what the server reports"

// loading reports whether the node is reading its data from disk after its start.
func loading(node doctor.Report) bool {
	refusal, ok := errors.AsType[*driver.ServerError](node.Reason)
	return ok && refusal.Code() == "LOADING"
}

// refuses reports whether the node would refuse locks, whatever its quarantine says. One that is loading does so
// only until it has loaded.
func refuses(node doctor.Report) bool { return node.Refusal != nil && !loading(node) }

// diagnoseSet looks at the nodes together.
func (d *doctorCmd) diagnoseSet(f *findings, reports []doctor.Report) {
	diagnoseQuorum(f, reports)
	of := len(reports)
	need := of/2 + 1
	switch {
	case of == 1 && reports[0].Cluster != nil: // diagnoseFailover says what each master costs
	case of == 1:
		f.add(note, "", "one node: nobody gets a lock while it is down, or after a restart until it is admitted", "name 3 or 5 independent masters")
	case of%2 == 0:
		f.add(warning, "", fmt.Sprintf("an even number of nodes, %d: a lock takes %d of them, so %d may be down, no more than with %d nodes", of, need, of-need, of-1),
			"name an odd number of nodes; redlatch deployment set --help says how to change a deployment's set of nodes")
	}
	if d.NoQuarantine {
		s := danger
		if !slices.ContainsFunc(reports, func(node doctor.Report) bool { return !node.Durable || node.Replicas > 0 }) {
			s = warning
		}
		change := "record the change with redlatch deployment set"
		if d.namesCluster() || slices.ContainsFunc(reports, func(node doctor.Report) bool { return node.Cluster != nil }) {
			change = anotherDeployment // redlatch deployment set refuses a Cluster
		}
		f.add(s, "", "the quarantine is off: a node that restarts, or a replica that takes its place, without the latest keys can give locks that are held to second holders", dropQuarantineOff+change)
	}
}

// dropQuarantineOff begins the remedy for a quarantine that is off.
const dropQuarantineOff = "drop --no-quarantine and REDLATCH_NO_QUARANTINE on all clients of the deployment, and "

// diagnoseVote says why a node does not vote. waiting is the number of nodes in quarantine.
func (d *doctorCmd) diagnoseVote(f *findings, node doctor.Report, waiting int) {
	switch {
	case d.diagnoseTwice(f, node):
	case node.Role != "" && node.Role != "master":
		f.add(danger, node.Node, "it is a replica, which never votes: a lock on its master may be missing on it", "name its master")
	case d.diagnoseRecord(f, node):
	case node.Status == doctor.StatusWaiting:
		remedy := "wait, or " + noLock + d.admitCommand(node.Node)
		if waiting > 1 {
			remedy = "wait, or " + noLock + d.admitAllCommand()
		}
		f.add(warning, node.Node, fmt.Sprintf("%v", node.Reason), remedy)
	case node.Status == doctor.StatusUnfit && len(node.Missing) == 0 && !loading(node):
		f.add(danger, node.Node, fmt.Sprintf("it does not vote: %v", node.Reason), "")
	}
}

// diagnoseTwice reports whether another node is the same server, and adds a finding about it.
func (d *doctorCmd) diagnoseTwice(f *findings, node doctor.Report) bool {
	if node.SameAs != "" {
		f.add(danger, node.Node, fmt.Sprintf("it is the same server as %s, which would vote twice: clients refuse to start", node.SameAs),
			"name each server once")
	}
	return node.SameAs != ""
}

// diagnoseServer looks at the configuration of the server.
func (d *doctorCmd) diagnoseServer(f *findings, node doctor.Report) {
	if node.Evicting {
		f.add(danger, node.Node, fmt.Sprintf("it may delete locks to make room (maxmemory %s, %s)", size(node.MaxMemory), node.Policy),
			"CONFIG SET maxmemory-policy noeviction, and the same in its configuration file")
	}
	if node.Role == "master" && node.Replicas < d.Replicas {
		f.add(danger, node.Node, fmt.Sprintf("replicas: %d, but --replicas says that %d must acknowledge: its votes do not count", node.Replicas, d.Replicas),
			"attach more replicas to it, or lower --replicas for the clients")
	}
	if kept := node.Persistence; d.Fsync && (strings.HasPrefix(kept, "AOF everysec") || strings.HasPrefix(kept, "AOF no")) {
		f.add(warning, node.Node, fmt.Sprintf("persistence: %s, but --fsync waits for its disk: many of its votes come too late to count", kept),
			"CONFIG SET appendfsync always on it and its replicas, and the same in their configuration files")
	}
	switch {
	case loading(node):
		f.add(warning, node.Node, "it is loading its data, and does not vote until it has", "wait")
	case node.Refusal != nil:
		f.add(danger, node.Node, fmt.Sprintf("it refuses harmless commands, and would refuse locks: %v", node.Refusal), mendReported)
	}
	if limit := cmp.Or(d.NodeTimeout, typicalNodeTimeout); node.Latency >= limit/2 {
		f.add(warning, node.Node, fmt.Sprintf("a round trip takes %s of the %s that clients wait for a node: some answers will come too late", microseconds(node.Latency), limit),
			"raise NodeTimeout or --node-timeout of the clients, or find out what makes the connection slow")
	}
}

// diagnoseRestart says what a restart of the node costs. alone: there is no other node.
func (d *doctorCmd) diagnoseRestart(f *findings, node doctor.Report, alone bool) {
	if d.NoQuarantine || d.Durable || node.Role != "master" {
		return
	}
	out := d.MaxTTL + outOfService
	remedy := "restart one node at a time, " + d.betweenRestarts() + " apart"
	if alone {
		remedy = "restart it when no lock is held, and vouch for it then: " + d.admitCommand(node.Node)
	}
	f.add(note, node.Node, fmt.Sprintf("persistence: %s: it does not vote for %s after each restart, because it may have forgotten locks; locks stay safe", node.Persistence, out),
		remedy+"; --durable on all clients saves the wait if every node has appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, and no replica takes its place")
}

// betweenRestarts is after how long the next node may be restarted: by then the one before votes, and the
// locks that are held were extended there.
func (d *doctorCmd) betweenRestarts() string { return (d.MaxTTL + outOfService + d.MaxTTL).String() }

// diagnoseSpeed adds a note about missing permissions that locks only need to be fast, and
// removes these from node.Missing.
func (d *doctorCmd) diagnoseSpeed(f *findings, node *doctor.Report) {
	var lacks, speed []string
	for _, rule := range node.Missing {
		if slices.Contains(speedRules, rule) {
			speed = append(speed, rule)
		} else {
			lacks = append(lacks, rule)
		}
	}
	node.Missing = lacks
	if len(speed) > 0 {
		f.add(note, node.Node, fmt.Sprintf("the user %s lacks %s: clients have no second connection for a lone caller, whose locks take longer", node.User, strings.Join(speed, " ")),
			fmt.Sprintf("ACL SETUSER %s %s", node.User, strings.Join(speed, " ")))
	}
}

// diagnoseUser looks at what the nodes' user may do.
func (d *doctorCmd) diagnoseUser(f *findings, node doctor.Report) {
	guessed := "~" + strings.Replace(d.keyTemplate(), "{name}", doctorName, 1)
	if len(d.Lock) == 0 && slices.Contains(node.Missing, guessed) {
		node.Missing = slices.DeleteFunc(slices.Clone(node.Missing), func(rule string) bool { return rule == guessed })
		f.add(warning, node.Node, fmt.Sprintf("the user %s may not use the key %s, which doctor tried because --lock names no lock", node.User, guessed[1:]),
			"name some of your locks with --lock; if their keys are refused too, permit them")
	}
	switch {
	case len(node.Missing) == 0:
	case !slices.ContainsFunc(node.Missing, func(rule string) bool { return !slices.Contains(waitingRules, rule) }):
		harm := "clients that wait for a lock are not woken up when it is free, and have to poll"
		if slices.ContainsFunc(node.Missing, func(rule string) bool { return strings.HasPrefix(rule, "+z") }) {
			harm += "; nobody can lock as a reader (--shared)"
		}
		f.add(warning, node.Node, fmt.Sprintf("the user %s lacks %s: %s", node.User, strings.Join(node.Missing, " "), harm),
			fmt.Sprintf("ACL SETUSER %s %s", node.User, strings.Join(node.Missing, " ")))
	default:
		f.add(danger, node.Node, fmt.Sprintf("the user %s lacks %s", node.User, strings.Join(node.Missing, " ")),
			fmt.Sprintf("ACL SETUSER %s %s", node.User, strings.Join(node.Missing, " ")))
	}
}

// speedRules are permissions that only the second connection needs.
var speedRules = []string{"+client|id", "+client|kill"}

// waitingRules are permissions that only waiting for a lock needs, and the readers' sorted sets.
var waitingRules = []string{"&redlatch:wake:*", "+client|caching", "+client|tracking", "+publish", "+spublish", "+ssubscribe", "+subscribe", "+zadd", "+zrange", "+zrank", "+zrem", "+zscore"}

func (d *doctorCmd) keyTemplate() string { return cmp.Or(d.KeyTemplate, "{name}") }

// diagnoseClocks compares the nodes' wall clocks with this machine's. If most nodes
// agree, they are taken to be right.
func (d *doctorCmd) diagnoseClocks(f *findings, reports []doctor.Report) {
	limit := drift(min(typicalTTL, d.MaxTTL))
	var known []doctor.Report
	for _, node := range reports {
		if node.ClockKnown {
			known = append(known, node)
		}
	}
	if len(known) == 0 {
		return
	}
	slices.SortFunc(known, func(a, b doctor.Report) int { return cmp.Compare(a.ClockOffset, b.ClockOffset) })
	middle := known[len(known)/2]
	agree := 0
	for _, node := range known {
		if apart(node, middle.ClockOffset) <= limit {
			agree++
		}
	}
	right := time.Duration(0)
	if off := apart(middle, 0); off > limit && len(known) > 1 && agree > len(known)/2 {
		right = middle.ClockOffset
		f.add(warning, "", fmt.Sprintf("this machine's wall clock is %s, by the clocks of %d of %d nodes%s", aside(-right), agree, len(known), clamped(off)),
			"keep it synchronized (chrony, ntpd)")
	}
	for _, node := range reports {
		if off := apart(node, right); node.ClockKnown && off > limit {
			f.add(warning, node.Node, fmt.Sprintf("its wall clock is %s%s: when it is set forward, locks on it end early by that much, and more than %s at once is unsafe",
				aside(node.ClockOffset-right), clamped(off), short(limit)),
				"keep it synchronized in small steps (chrony, ntpd); set it right while no lock is held")
		}
	}
}

// apart is by how much the node's clock is wrong at least.
func apart(node doctor.Report, right time.Duration) time.Duration {
	return max(0, (node.ClockOffset-right).Abs()-node.ClockError)
}

// drift is how far clocks may differ for a lock of this TTL.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

func aside(d time.Duration) string {
	if d < 0 {
		return short(-d).String() + " behind"
	}
	return short(d).String() + " ahead"
}

// clamped says what a clock that is wrong by off does to fencing tokens.
func clamped(off time.Duration) string {
	if off <= clamp {
		return ""
	}
	return fmt.Sprintf(" (beyond %s, nodes disagree about fencing tokens, and locks take a second round trip)", clamp)
}

func size(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprint(n, "B")
	}
	value, unit := float64(n), -1
	for value >= 1<<10 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	return strconv.FormatFloat(value, 'g', 4, 64) + units[unit:unit+1]
}
