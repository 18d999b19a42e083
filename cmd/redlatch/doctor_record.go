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
// reports whether there is anything to say.
func (d *doctorCmd) diagnoseRecord(f *findings, node doctor.Report) bool {
	if node.Unreadable != nil {
		f.add(danger, node.Node, fmt.Sprintf("it does not vote: %v", node.Unreadable),
			"with the settings that the clients have: "+d.setCommand())
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
		f.add(danger, node.Node, fmt.Sprintf("the deployment %q has the nodes [%s] %s, and --nodes names others: their quorums need not meet, so it does not vote for both", d.Deployment, strings.Join(node.OtherSet, " "), at),
			"name the same nodes everywhere, or another --deployment; to have the deployment on these nodes: "+d.setCommand())
		return true
	}
	f.add(danger, node.Node, fmt.Sprintf("the deployment %q has %s %s, and these settings are %s: it does not vote for clients that have them", d.Deployment, termsText(other.Recorded), at, termsText(other.Ours)),
		d.setHint())
	return true
}

// termsText names the settings of an agreement as the tool does.
func termsText(a admission.Agreement) string {
	return settings{maxTTL: a.MaxTTL, noQuarantine: a.NoQuarantine, durable: a.Durable}.String()
}

// diagnoseDurable compares the word that nodes are durable with what is seen of one.
func (d *doctorCmd) diagnoseDurable(f *findings, node doctor.Report) {
	if !d.Durable || node.Role != "master" {
		return
	}
	const right = "appendonly yes, appendfsync always and no-appendfsync-on-rewrite no"
	again := "set " + right + ", also in its configuration file; then, as the word is void once that was seen: " + d.setCommand()
	r := node.Recorded
	switch void := r != nil && r.Void != ""; {
	case strings.Contains(node.Persistence, "unknown"):
		f.add(warning, node.Node, "its settings are not shown to this user, so --durable is not believed after a restart", "permit CONFIG GET")
	case !node.Durable:
		f.add(danger, node.Node, fmt.Sprintf("it is said to be durable, and may forget what it answered (persistence: %s; needed: %s)", node.Persistence, right), again)
	case void:
		f.add(warning, node.Node, "--durable is not believed any more: "+printable.Text(r.Void), "say it again if it is true now: "+d.setCommand())
	}
	if node.Replicas > 0 {
		f.add(warning, node.Node, fmt.Sprintf("%d replicas are attached, and --durable says that none ever takes its place", node.Replicas),
			"see that nobody promotes one, or drop --durable for all clients with redlatch deployment set")
	}
}

// diagnoseKeys tells of keys of the locks named by --lock that no client can have written.
func (d *doctorCmd) diagnoseKeys(f *findings, node doctor.Report) {
	for _, k := range node.ForeignKeys {
		s, effect := danger, "the lock cannot be acquired there"
		if !k.Blocks {
			s, effect = warning, "it means nothing to clients, who replace it"
		}
		f.add(s, node.Node, fmt.Sprintf("the key %q: %s: %s", k.Key, k.Problem, effect),
			fmt.Sprintf("when nobody holds the lock, delete it: DEL %q", k.Key))
	}
}
