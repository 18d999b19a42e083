package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/printable"
)

// writeTable prints a row for each node, then the findings.
func writeTable(w io.Writer, reports []doctor.Report, found findings) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tANSWERS\tLATENCY\tSERVER\tROLE\tUP\tVOTES\tKEEPS\tMAXMEMORY\tCLOCK\tLACKS\tSAME AS")
	for _, node := range reports {
		cells := row
		if node.Cluster != nil {
			cells = clusterRow
		}
		fmt.Fprintln(table, strings.Join(cells(node), "\t"))
	}
	table.Flush()
	fmt.Fprintln(&text)
	writeFindings(&text, found)
	if exitCode(found) == 0 {
		fmt.Fprintf(&text, "all well: %d of %d nodes vote, and a lock takes %d\n", len(reports), len(reports), len(reports)/2+1)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func writeFindings(text *strings.Builder, found findings) {
	for _, one := range found {
		about := ""
		if len(one.nodes) > 0 {
			about = strings.Join(one.nodes, ", ") + ": "
		}
		if len(one.nodes) > 1 {
			about = "each of " + about // the text is about one: "it does not vote"
		}
		fmt.Fprintf(text, "%-7s  %s%s\n", one.severity, about, oneLine(one.text))
		if one.remedy != "" {
			fmt.Fprintf(text, "%-7s  remedy: %s\n", "", printable.Text(one.remedy))
		}
	}
}

// row has a cell for each column of the table. "-" stands for what is unknown or
// does not apply.
func row(node doctor.Report) []string {
	cells := []string{node.Node, "no", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"}
	set := func(i int, known bool, text string) {
		if known {
			cells[i] = text
		}
	}
	informed := node.Server != ""
	set(1, node.Err == nil, "yes")
	set(2, node.Latency > 0, microseconds(node.Latency))
	set(3, informed, node.Server+" "+node.Version)
	set(4, node.Role != "", node.Role)
	set(5, informed, age(node.Uptime))
	set(6, node.Err == nil, votes(node))
	set(7, informed && node.Err == nil, node.Persistence)
	set(8, node.MaxMemory > 0, size(node.MaxMemory)+" "+node.Policy)
	set(9, node.ClockKnown, clockText(node))
	set(10, len(node.Missing) > 0, strings.Join(node.Missing, " "))
	set(11, node.SameAs != "", node.SameAs)
	for i, cell := range cells {
		cells[i] = printable.Text(cell) // a tab would begin the next cell
	}
	return cells
}

// votes says in a word or two whether the node votes.
func votes(node doctor.Report) string {
	if refuses(node) {
		return "no"
	}
	switch node.Status {
	case doctor.StatusAdmitted, doctor.StatusAdmissible:
		return "yes"
	case doctor.StatusWaiting:
		return "in " + short(node.Left).String()
	case doctor.StatusUnfit:
		return "no"
	}
	return "?"
}

func clockText(node doctor.Report) string {
	sign, offset := "+", node.ClockOffset.Round(time.Microsecond)
	if offset < 0 {
		sign = "-"
	}
	return sign + microseconds(offset.Abs()) + " ±" + microseconds(node.ClockError)
}

// microseconds rounds a duration that may be very short.
func microseconds(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return short(d).String()
}

// age writes the two largest units of a duration.
func age(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, unit := range units[:3] {
		if d >= unit.size {
			next := units[i+1]
			return fmt.Sprintf("%d%s%d%s", d/unit.size, unit.name, d%unit.size/next.size, next.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// oneLine turns a text with parts from others into one line that is safe for a terminal.
func oneLine(text string) string { return printable.Text(strings.Join(strings.Fields(text), " ")) }

// nodeJSON is a node in the output of --json. Times are in seconds.
type nodeJSON struct {
	Node      string   `json:"node"`
	Error     string   `json:"error,omitempty"`
	Latency   float64  `json:"latency"`
	Server    string   `json:"server,omitempty"`
	Version   string   `json:"version,omitempty"`
	Role      string   `json:"role,omitempty"`
	RunID     string   `json:"run_id,omitempty"`
	Uptime    float64  `json:"uptime"`
	Status    string   `json:"status"`
	Reason    string   `json:"reason,omitempty"`
	Left      float64  `json:"left"`
	OtherSet  []string `json:"other_set,omitempty"`
	SameAs    string   `json:"same_as,omitempty"`
	Persists  string   `json:"persistence,omitempty"`
	Durable   bool     `json:"durable"`
	MaxMemory int64    `json:"maxmemory"`
	Policy    string   `json:"maxmemory_policy,omitempty"`
	Evicting  bool     `json:"evicting"`
	Offset    *float64 `json:"clock_offset,omitempty"`
	OffError  *float64 `json:"clock_error,omitempty"`
	User      string   `json:"user,omitempty"`
	Missing   []string `json:"missing,omitempty"`
	Refusal   string   `json:"refusal,omitempty"`

	Unreadable string    `json:"unreadable,omitempty"`
	Void       string    `json:"durable_void,omitempty"`
	Replicas   int       `json:"replicas"`
	Foreign    []keyJSON `json:"foreign_keys,omitempty"`

	Masters  []masterJSON `json:"masters,omitempty"`
	Unserved int          `json:"unserved_slots,omitempty"`
}

// keyJSON is a key that no client can have written.
type keyJSON struct {
	Key     string `json:"key"`
	Problem string `json:"problem"`
	Blocks  bool   `json:"blocks"`
}

type findingJSON struct {
	Severity string   `json:"severity"`
	Nodes    []string `json:"nodes,omitempty"`
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy,omitempty"`
}

// findingsJSON returns the findings for the output of --json.
func findingsJSON(found findings) []findingJSON {
	all := []findingJSON{}
	for _, one := range found {
		all = append(all, findingJSON{one.severity.String(), one.nodes, one.text, one.remedy})
	}
	return all
}

// writeJSON prints one object with the nodes, the findings and the exit code.
func writeJSON(w io.Writer, reports []doctor.Report, found findings) error {
	answer := struct {
		Nodes    []nodeJSON    `json:"nodes"`
		Findings []findingJSON `json:"findings"`
		Exit     int           `json:"exit"`
	}{[]nodeJSON{}, findingsJSON(found), exitCode(found)}
	for _, node := range reports {
		answer.Nodes = append(answer.Nodes, asJSON(node))
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(answer)
}

func asJSON(node doctor.Report) nodeJSON {
	n := nodeJSON{
		Node: node.Node, Error: words(node.Err), Latency: seconds(node.Latency),
		Server: node.Server, Version: node.Version, Role: node.Role, RunID: node.RunID, Uptime: seconds(node.Uptime),
		Status: node.Status.String(), Reason: words(node.Reason), Left: seconds(node.Left),
		OtherSet: node.OtherSet, SameAs: node.SameAs,
		Persists: node.Persistence, Durable: node.Durable,
		MaxMemory: node.MaxMemory, Policy: node.Policy, Evicting: node.Evicting,
		User: node.User, Missing: node.Missing, Refusal: words(node.Refusal),
		Unreadable: words(node.Unreadable), Replicas: node.Replicas,
	}
	if node.Recorded != nil {
		n.Void = node.Recorded.Void
	}
	if node.Cluster != nil {
		n.Masters, n.Unserved = mastersJSON(node), node.Cluster.Unserved
	}
	for _, k := range node.ForeignKeys {
		n.Foreign = append(n.Foreign, keyJSON(k))
	}
	if node.ClockKnown {
		offset, margin := seconds(node.ClockOffset), seconds(node.ClockError)
		n.Offset, n.OffError = &offset, &margin
	}
	return n
}

// words is the text of an error, "" of none.
func words(err error) string {
	if err == nil {
		return ""
	}
	return inFlags(withoutScript(err.Error()))
}
