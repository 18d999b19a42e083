package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/admission"
)

// deploymentShowCmd is `redlatch deployment show`. It prints to stdout.
type deploymentShowCmd struct {
	connection

	JSON bool
}

// line is its command line.
func (s *deploymentShowCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what each node has recorded of the deployment.",
		Long: `Shows what each node has recorded of the deployment: the longest TTL, whether the quarantine is off, whether the nodes are said to be durable, the set of nodes, and which run of the node was admitted or for how long the node does not vote. It also says whether --max-ttl, --no-quarantine, --durable and --nodes as given here agree with that. It changes nothing, and works with any settings.

Exit codes:

	0   every node that answered has exactly these settings
	1   a node has other settings, or none yet
	64  usage
	69  too few nodes answered to tell
	77  likewise, and a node refused: waiting does not help`,
		Example: `  # what the nodes have recorded, and whether they agree
  redlatch deployment show
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	s.connection.addTo(flags)
	commandline.Bool(flags, &s.JSON, "json", "", "Print JSON.")
	return cmd
}

// exitDiffers is the exit code of `redlatch deployment show` if these settings are not the
// recorded ones.
const exitDiffers = 1

// Run examines the nodes and prints what they have recorded.
func (s *deploymentShowCmd) Run(out *printer) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	s.sayNodes(out)
	reports, err := examine(cfg)
	if err != nil {
		return err
	}
	answered, refused, agree := 0, false, true
	for _, node := range reports {
		if node.Err == nil {
			answered++
			agree = agree && has(node)
		} else {
			refused = refused || nodeCode(node.Err) == exitRefused
		}
	}
	code, few := 0, answered < len(reports)/2+1
	switch {
	case few && refused:
		code = exitRefused
	case few:
		code = exitNoQuorum
	case !agree:
		code = exitDiffers
	}
	if s.JSON {
		err = s.json(os.Stdout, cfg, reports, code)
	} else {
		_, err = io.WriteString(os.Stdout, s.text(cfg, reports, code))
	}
	if err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	if code != 0 {
		return &outcome{code: code}
	}
	return nil
}

func (s *deploymentShowCmd) text(cfg redlatch.Config, reports []doctor.Report, code int) string {
	var text strings.Builder
	names := nodeNames(reports)
	fmt.Fprintf(&text, "deployment %s\nthese settings: %s\n", cfg.Deployment, settingsOf(cfg))
	for _, node := range reports {
		fmt.Fprintf(&text, "  %s: %s\n", node.Node, recordText(node, names))
		if r := node.Recorded; r != nil && node.Unreadable == nil {
			fmt.Fprintf(&text, "    %s\n", statusText(r))
		}
	}
	switch code {
	case 0:
		fmt.Fprintln(&text, "they agree")
	case exitDiffers:
		fmt.Fprintln(&text, s.differenceText(reports))
	default:
		fmt.Fprintln(&text, "too few nodes answered to tell")
		for _, hint := range remedies(errorsOf(reports)...) {
			fmt.Fprintln(&text, hint)
		}
	}
	return text.String()
}

// differenceText says what is to be done where not all nodes have recorded the settings.
func (s *deploymentShowCmd) differenceText(reports []doctor.Report) string {
	cluster, differs, unfit := false, false, false
	renaming := ""
	for _, node := range reports {
		if other, ok := errors.AsType[*admission.DisagreementError](node.Reason); ok && node.OtherSet != nil {
			renaming = "name the same nodes (" + other.Renaming() + "); else "
		}
		unfit = unfit || node.Recorded == nil && node.Status == doctor.StatusUnfit
		cluster = cluster || node.Cluster != nil
		differs = differs || node.Err == nil && !has(node) && (node.Recorded != nil || node.Unreadable != nil)
	}
	switch {
	case later(reports) != nil:
		return "they differ: " + updateRemedy
	case !differs && unfit:
		return "a node has no record, and gets none before what it says is mended"
	case !differs:
		return "a node has no record yet: the first client that it votes for writes one"
	case cluster:
		return "they differ: " + renaming + clusterRemedy
	}
	return "they differ: " + renaming + s.setHint()
}

// statusText says whether the node votes for clients with the recorded settings.
func statusText(r *doctor.Recorded) string {
	switch r.Status {
	case doctor.StatusAdmitted:
		return "run " + oneLine(r.RunID) + " was admitted and votes"
	case doctor.StatusAdmissible:
		return "it votes as soon as a client asks it to"
	}
	return "does not vote: " + oneLine(words(r.Reason))
}

// settingsJSON are settings in the output of --json. Times are in seconds.
type settingsJSON struct {
	MaxTTL     float64  `json:"max_ttl"`
	Quarantine bool     `json:"quarantine"`
	Durable    bool     `json:"durable"`
	Nodes      []string `json:"nodes"`
}

func (s settings) json(nodes []string) settingsJSON {
	return settingsJSON{seconds(s.maxTTL), !s.noQuarantine, s.durable, nodes}
}

func (s *deploymentShowCmd) json(w io.Writer, cfg redlatch.Config, reports []doctor.Report, code int) error {
	type recordJSON struct {
		settingsJSON
		Void   string  `json:"void,omitempty"`
		RunID  string  `json:"run_id"`
		Agrees bool    `json:"agrees"`
		Status string  `json:"status"`
		Reason string  `json:"reason,omitempty"`
		Left   float64 `json:"left"`
	}
	type nodeRecord struct {
		Node       string      `json:"node"`
		Error      string      `json:"error,omitempty"`
		Unreadable string      `json:"unreadable,omitempty"`
		Recorded   *recordJSON `json:"recorded"`
	}
	answer := struct {
		Deployment string       `json:"deployment"`
		Settings   settingsJSON `json:"settings"`
		Nodes      []nodeRecord `json:"nodes"`
		Exit       int          `json:"exit"`
	}{cfg.Deployment, settingsOf(cfg).json(nodeNames(reports)), []nodeRecord{}, code}
	for _, node := range reports {
		n := nodeRecord{Node: node.Node, Error: words(node.Err), Unreadable: words(node.Unreadable)}
		if r := node.Recorded; r != nil {
			n.Recorded = &recordJSON{recordedSettings(r).json(r.Nodes), r.Void, r.RunID, r.Agrees, r.Status.String(), words(r.Reason), seconds(r.Left)}
		}
		answer.Nodes = append(answer.Nodes, n)
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(answer)
}
