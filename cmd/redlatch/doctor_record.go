package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/printable"
)

// diagnoseRecord compares what the node has recorded of the deployment with these settings. It
// reports whether it has added a finding.
func (d *doctorCmd) diagnoseRecord(f *findings, node doctor.Report) bool {
	if node.Unreadable != nil {
		d.diagnoseUnreadable(f, node, "write a new record with the settings that the clients have: "+d.setCommand())
		return true
	}
	other, ok := errors.AsType[*admission.DisagreementError](node.Reason)
	if !ok || node.Status != doctor.StatusUnfit {
		return false
	}
	at := "there"
	if other.Node != "" {
		at = "on " + other.Node
	}
	if node.OtherSet != nil {
		f.add(danger, node.Node, fmt.Sprintf("the deployment %q has the nodes [%s] %s, but --nodes names others: the quorums of the two sets need not meet, so it does not vote for both", d.Deployment, strings.Join(node.OtherSet, " "), at),
			"name the same nodes everywhere ("+other.Renaming()+"), or another --deployment for locks that are not shared; to move the deployment to these nodes: "+d.setCommand())
		return true
	}
	f.add(danger, node.Node, fmt.Sprintf("the deployment %q has %s %s, but these settings are %s: it does not vote for clients with these settings", d.Deployment, termsText(other.Recorded), at, termsText(other.Ours)),
		d.setHint())
	return true
}

// diagnoseUnreadable adds the finding about a key of the deployment that cannot be read. The remedy is for one
// that no client has written.
func (d *doctorCmd) diagnoseUnreadable(f *findings, node doctor.Report, remedy string) {
	if errors.Is(node.Unreadable, admission.ErrLater) {
		remedy = updateRemedy
	}
	f.add(danger, node.Node, fmt.Sprintf("it does not vote: %v", node.Unreadable), remedy)
}

// termsText describes an agreement as the tool describes settings.
func termsText(a admission.Agreement) string {
	return settings{maxTTL: a.MaxTTL, noQuarantine: a.NoQuarantine, durable: a.Durable}.String()
}

// diagnoseDurable compares --durable with what the node reports.
func (d *doctorCmd) diagnoseDurable(f *findings, node doctor.Report) {
	if !d.Durable || node.Role != "master" {
		return
	}
	const right = "appendonly yes, appendfsync always and no-appendfsync-on-rewrite no"
	set := "set " + right + ", also in its configuration file"
	r := node.Recorded
	if r != nil {
		set += "; then, because the recorded --durable is void by now, record it anew: " + d.setCommand()
	}
	switch void := r != nil && r.Void != ""; {
	case strings.Contains(node.Persistence, "unknown"):
		f.add(warning, node.Node, "this user may not read its settings, so clients do not believe --durable after a restart", "permit CONFIG GET to this user")
	case !node.Durable:
		f.add(danger, node.Node, fmt.Sprintf("--durable says that it is durable, but it may forget what it answered (persistence: %s; needed: %s)", node.Persistence, right), set)
	case void:
		f.add(warning, node.Node, "clients do not believe --durable any more: "+printable.Text(r.Void), "if it is true now, record it anew: "+d.setCommand())
	}
	if node.Replicas > 0 {
		f.add(warning, node.Node, fmt.Sprintf("replicas: %d, but --durable says that none ever takes its place", node.Replicas),
			"make sure that nobody promotes one, or drop --durable for all clients with redlatch deployment set")
	}
}

// diagnoseKeys adds findings about keys of the locks of --lock that no client can have written.
func (d *doctorCmd) diagnoseKeys(f *findings, node doctor.Report) {
	for _, k := range node.ForeignKeys {
		s, effect := danger, "the lock cannot be acquired there"
		if !k.Blocks {
			s, effect = warning, "clients ignore and replace it"
		}
		f.add(s, node.Node, fmt.Sprintf("the key %q: %s: %s", k.Key, k.Problem, effect),
			fmt.Sprintf("when nobody holds the lock, delete it: DEL %q", k.Key))
	}
}
