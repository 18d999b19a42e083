package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/printable"
)

// settings are what all clients of a deployment must agree on.
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

// quarantine is how long a node stays out that may have forgotten locks of these settings.
func (s settings) quarantine() time.Duration {
	return admission.Agreement{MaxTTL: s.maxTTL}.Quarantine()
}

// recordText says in a few words what a node has recorded. names are the nodes that go
// without saying.
func recordText(node doctor.Report, names []string) string {
	switch r := node.Recorded; {
	case node.Unreadable != nil:
		return oneLine(node.Unreadable.Error())
	case r == nil && node.Err != nil:
		return "cannot be asked: " + oneLine(strings.TrimPrefix(node.Err.Error(), "not sent: "))
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

// has reports whether the node has just these settings recorded, and believes them.
func has(node doctor.Report) bool {
	return node.Recorded != nil && node.Recorded.Agrees && node.Recorded.Void == "" && node.Unreadable == nil
}

// examine looks at the nodes, names apart.
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

// nodeNames are the names of the reports' nodes, sorted.
func nodeNames(reports []doctor.Report) []string {
	names := make([]string, len(reports))
	for i, node := range reports {
		names[i] = node.Node
	}
	slices.Sort(names)
	return names
}

// nodeCode is the exit code for a node that could not be admitted or reset.
func nodeCode(err error) int {
	_, answered := errors.AsType[*driver.ServerError](err)
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		return exitUsage
	case errors.Is(err, redlatch.ErrRefused), answered, errors.Is(err, admission.ErrReplica):
		return exitRefused
	}
	return exitNoQuorum
}

// disagrees reports whether an error says that the client's settings are not the recorded ones.
func disagrees(err error) bool {
	_, ok := errors.AsType[*admission.DisagreementError](err)
	return ok
}

// setHint names the command that changes the deployment to the settings of c.
func (c *connection) setHint() string {
	return "give the settings that are recorded; or change them for all clients: " + c.setCommand()
}

// listed are names in a sentence.
func listed(names []string) string { return strings.Join(names, ", ") }
