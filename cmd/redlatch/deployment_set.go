package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/doctor"
)

// deploymentSetCmd is `redlatch deployment set`.
type deploymentSetCmd struct {
	connection

	Yes bool
}

// line is its command line.
func (s *deploymentSetCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change, on all nodes, the settings that all clients must agree on.",
		Long: `Has the nodes record these settings in place of the old ones: --max-ttl, --no-quarantine, --durable and the set of --nodes, which all clients of the deployment must agree on. It first says which settings are recorded and which will be, and asks.

Locks that are held now are not extended any more, and end with their TTL. Nobody gets a new lock until a quarantine is over (the longest TTL of the old and the new settings, plus about 5 s); with --no-quarantine there is none. The nodes refuse clients with the old settings from the change on.

It refuses a Redis Cluster: the masters would change one after another, and each votes alone for its slots. Give all clients another --deployment instead, once no lock is held.

It leaves nodes alone that have exactly these settings. If some nodes could not be reached, repeat the command when they can be: clients get locks once a majority has the settings.

Exit codes:

	0   all nodes have the settings
	64  usage, or the answer was not yes: nothing was changed
	69  some nodes could not be reached
	77  a node refused (password, permission, a replica, ...)`,
		Example: `  # allow TTLs of five minutes; then restart the clients, with --max-ttl 5m
  redlatch deployment set --max-ttl 5m
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	s.connection.addTo(flags)
	commandline.Bool(flags, &s.Yes, "yes", "", "Do not ask. Needed if stdin is not a terminal.")
	return cmd
}

// Run examines the nodes, asks, and resets those that differ.
func (s *deploymentSetCmd) Run(out *printer) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	if name := clusterAmong(cfg.Nodes); name != "" {
		return usage("use another --deployment for all clients, once no lock is held",
			"%s is a Cluster, whose settings cannot be changed: its masters would change one after another, each votes alone for its slots, and one that forgot its locks meanwhile could give a lock to a second holder", name)
	}
	client, err := s.open(cfg, out)
	if err != nil {
		return err
	}
	defer s.close(client, out)
	reports, err := examine(cfg)
	if err != nil {
		return err
	}
	if err := later(reports); err != nil { // nor would a node be reset
		return &outcome{code: exitRefused, err: fmt.Errorf("nothing was changed: %w", err), hints: []string{updateRemedy}}
	}
	p := s.plan(cfg, reports)
	switch {
	case len(p.change) == 0 && len(p.away) == 0:
		out.say("nothing to do: all %d nodes have %s", len(reports), settingsOf(cfg))
		return nil
	case len(p.change) == 0:
		return s.end(p, nil, out)
	}
	out.write(p.lines()...)
	if err := s.confirm(out); err != nil {
		return err
	}
	var failed []error
	for _, node := range p.change {
		ctx, cancel := context.WithTimeout(context.Background(), admitTimeout(cfg))
		err := client.Reset(ctx, node.Node)
		cancel()
		if err != nil {
			failed = append(failed, err)
			p.away = append(p.away, node.Node)
			continue
		}
		p.done = append(p.done, node.Node)
		out.say("%s has %s", node.Node, settingsOf(cfg))
	}
	if p.wasOff && len(p.done) > 0 {
		after, err := examine(cfg)
		if err != nil {
			return err
		}
		for _, node := range after {
			p.quarantine = max(p.quarantine, node.Left)
		}
	}
	return s.end(p, failed, out)
}

func (s *deploymentSetCmd) confirm(out *printer) error {
	return confirm(s.Yes, "cannot ask whether to change the deployment", "type yes to change the deployment: ", "nothing was changed", out)
}

// plan says what a change of a deployment will do.
type plan struct {
	cfg     redlatch.Config
	reports []doctor.Report
	// change are the nodes to reset. done has the names of nodes that have the settings,
	// and away the names of nodes that were not reached.
	change     []doctor.Report
	done, away []string
	// quarantine is how long the changed nodes do not vote.
	quarantine time.Duration
	// otherSet: a node has recorded another set of nodes. lost: a node has a record that
	// cannot be read. wasOff: a node has recorded that there is no quarantine, and does not say
	// how much is left of an earlier one.
	otherSet, lost, wasOff bool
}

func (s *deploymentSetCmd) plan(cfg redlatch.Config, reports []doctor.Report) *plan {
	p := &plan{cfg: cfg, reports: reports, quarantine: settingsOf(cfg).quarantine()}
	names := nodeNames(reports)
	for _, node := range reports {
		if r := node.Recorded; r != nil {
			p.quarantine = max(p.quarantine, recordedSettings(r).quarantine(), r.Left)
			p.otherSet = p.otherSet || !slices.Equal(r.Nodes, names)
			p.wasOff = p.wasOff || r.NoQuarantine && !cfg.NoQuarantine
		}
		p.quarantine = max(p.quarantine, node.Left)
		p.lost = p.lost || node.Unreadable != nil
		switch {
		case node.Err != nil:
			p.away = append(p.away, node.Node)
		case has(node):
			p.done = append(p.done, node.Node)
		default:
			p.change = append(p.change, node)
		}
	}
	return p
}

// lines says which settings are recorded, which will be, and what the change costs.
func (p *plan) lines() []string {
	names := nodeNames(p.reports)
	lines := []string{fmt.Sprintf("the deployment %q will have %s on %s", p.cfg.Deployment, settingsOf(p.cfg), listed(names)), "recorded now:"}
	for _, node := range p.reports {
		text := recordText(node, names)
		switch {
		case node.Err != nil:
			text += ": it cannot be changed now"
		case has(node):
			text += ": it is not changed"
		}
		lines = append(lines, "  "+node.Node+": "+text)
	}
	if p.lost {
		lines = append(lines, "a record cannot be read, so nobody knows the longest TTL so far: if it was longer than this --max-ttl, answer no, and wait for that long first")
	}
	lines = append(lines, "locks that are held now are not extended any more, and end with their TTL")
	switch {
	case p.cfg.NoQuarantine:
		lines = append(lines, "the nodes vote at once, because --no-quarantine is given")
	case p.wasOff:
		lines = append(lines, fmt.Sprintf("the changed nodes do not vote for %s, or for as long as is left of an earlier quarantine: nobody gets a new lock until a majority votes", short(p.quarantine)))
	default:
		lines = append(lines, fmt.Sprintf("the changed nodes do not vote for %s, the longer quarantine of the old and the new settings: nobody gets a new lock until a majority votes", short(p.quarantine)))
	}
	lines = append(lines, "clients with the old settings are refused from then on: restart them with the new ones")
	if p.otherSet {
		lines = append(lines, "the set of nodes changes: first stop every client with the old nodes, on every machine",
			"a client that is not stopped goes on locking, and extending its locks, which can then get a second holder")
	}
	return lines
}

// end says what happened. Every node is in p.done or in p.away by now.
func (s *deploymentSetCmd) end(p *plan, failed []error, out *printer) error {
	of := len(p.reports)
	need := of/2 + 1
	if len(p.done) >= need && len(p.change) > 0 && !p.cfg.NoQuarantine {
		out.say("the changed nodes vote in %s; to admit them now, if no lock is held any more: %s", short(p.quarantine), s.admitCommand(p.changed()...))
	}
	if len(p.away) == 0 {
		return nil
	}
	state := fmt.Sprintf("but clients get no locks until a majority, %d, has it", need)
	if len(p.done) >= need {
		state = "which is a majority, so clients with these settings get locks"
	}
	end := &outcome{
		code: exitNoQuorum,
		err:  fmt.Errorf("%d of %d nodes have %s, %s; not changed: %s", len(p.done), of, settingsOf(p.cfg), state, listed(p.away)),
	}
	for _, err := range failed {
		end.details = append(end.details, withoutScript(err.Error()))
		if code := nodeCode(err); code != exitNoQuorum {
			end.code = code
		}
	}
	for _, node := range p.reports {
		if node.Err != nil {
			end.details = append(end.details, node.Node+": "+recordText(node, nil))
			if nodeCode(node.Err) == exitRefused {
				end.code = exitRefused
			}
		}
	}
	end.hints = remedies(append(errorsOf(p.reports), failed...)...)
	first := "when these nodes can be reached"
	if end.code != exitNoQuorum {
		first = "when what the nodes refuse is mended"
	}
	end.hints = append(end.hints, "repeat the command "+first+": "+s.setCommand())
	return end
}

// changed returns the names of the nodes that were reset.
func (p *plan) changed() []string {
	var names []string
	for _, node := range p.change {
		if slices.Contains(p.done, node.Node) {
			names = append(names, node.Node)
		}
	}
	return names
}
