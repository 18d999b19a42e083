package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/redisconn"
)

// settings are the settings that all clients of a deployment must agree on.
type settings struct {
	maxTTL                time.Duration
	noQuarantine, durable bool
}

func settingsOf(cfg redlatch.Config) settings {
	return settings{cfg.MaxTTL, cfg.NoQuarantine, cfg.Durable}
}

func recordedSettings(r *doctor.Recorded) settings {
	return settings{r.MaxTTL, r.NoQuarantine, r.Durable}
}

func (s settings) String() string {
	text := "MaxTTL " + s.maxTTL.String()
	if s.noQuarantine {
		text += ", no quarantine"
	}
	if s.durable {
		text += ", durable"
	}
	return text
}

// quarantine is how long a node does not vote after a change from or to these settings, by its note.
func (s settings) quarantine() time.Duration {
	note := admission.NewNote(admission.Server{}, 0, admission.Agreement{MaxTTL: s.maxTTL}.Quarantine())
	return time.Duration(note.Length) * time.Second
}

// recordText says in a few words what a node has recorded. It leaves out the set of nodes if
// that is names.
func recordText(node doctor.Report, names []string) string {
	switch r := node.Recorded; {
	case node.Unreadable != nil:
		return oneLine(words(node.Unreadable))
	case r == nil && node.Err != nil:
		return "cannot be examined: " + oneLine(strings.TrimPrefix(words(node.Err), "not sent: "))
	case r == nil && node.Status == doctor.StatusUnfit:
		return "nothing, and it does not vote: " + oneLine(words(node.Reason))
	case r == nil:
		return "nothing"
	default:
		text := recordedSettings(r).String()
		if r.Void != "" {
			text += " (void: " + printable.Text(r.Void) + ")"
		}
		if !slices.Equal(r.Nodes, names) {
			text += ", nodes [" + printable.Text(strings.Join(r.Nodes, " ")) + "]"
		}
		return text
	}
}

// has reports whether the node has recorded exactly these settings, and the record is not void.
func has(node doctor.Report) bool {
	return node.Recorded != nil && node.Recorded.Agrees && node.Recorded.Void == "" && node.Unreadable == nil
}

// updateRemedy is the remedy if a later version has recorded the deployment.
const updateRemedy = "update this program and the clients that are refused"

// later returns why a node has the record of a later version, nil if none has.
func later(reports []doctor.Report) error {
	for _, node := range reports {
		if errors.Is(node.Unreadable, admission.ErrLater) {
			return fmt.Errorf("%s: %w", node.Node, node.Unreadable)
		}
	}
	return nil
}

// examine examines the nodes, but no locks.
func examine(cfg redlatch.Config) ([]doctor.Report, error) {
	reports, err := doctor.Examine(context.Background(), cfg)
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		return nil, &outcome{code: exitUsage, err: err}
	case err != nil:
		return nil, &outcome{code: exitInternal, err: err}
	}
	return reports, nil
}

// nodeNames returns the names of the reports' nodes, sorted.
func nodeNames(reports []doctor.Report) []string {
	names := make([]string, len(reports))
	for i, node := range reports {
		names[i] = node.Node
	}
	slices.Sort(names)
	return names
}

// nodeCode is the exit code for a node that could not be examined, admitted or reset.
func nodeCode(err error) int {
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		return exitUsage
	case errors.Is(err, redlatch.ErrRefused), errors.Is(err, admission.ErrUnfit), redisconn.Unfit(err):
		return exitRefused
	}
	return exitNoQuorum
}

// disagrees reports whether an error says that the client's settings differ from the recorded ones.
func disagrees(err error) bool {
	_, ok := errors.AsType[*admission.DisagreementError](err)
	return ok
}

// setHint says what to do if the settings of c differ from the recorded ones.
func (c *connection) setHint() string {
	if c.namesCluster() {
		return clusterRemedy
	}
	return "give the recorded settings, or change them for all clients: " + c.setCommand()
}

// raiseHint says how to raise --max-ttl for all clients, so that it permits this TTL.
func (c *connection) raiseHint(ttl time.Duration) string {
	if c.namesCluster() {
		return anotherDeployment
	}
	raised := *c
	raised.MaxTTL = ttl
	return raised.setCommand()
}

// anotherDeployment is what to do in place of redlatch deployment set if a node is a Cluster.
const anotherDeployment = "give them another --deployment, once no lock is held"

// clusterRemedy is the remedy if a node is a Cluster and the settings differ from the recorded ones.
const clusterRemedy = "give the recorded settings; those of a Cluster cannot be changed: to use others, give all clients another --deployment, once no lock is held"

// namesCluster reports whether a URL of --nodes is a Cluster's.
func (c *connection) namesCluster() bool { return clusterAmong(c.Nodes) != "" }

// clusterAmong returns the name of the first node whose URL is a Cluster's, or "".
func clusterAmong(nodes []string) string {
	for _, node := range nodes {
		if options, name, err := redisconn.Parse(strings.TrimSpace(node)); err == nil && options.Cluster {
			return name
		}
	}
	return ""
}

// listed joins names for a sentence.
func listed(names []string) string { return strings.Join(names, ", ") }
