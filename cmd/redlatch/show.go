package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/oneshot"
)

// showCmd is `redlatch show`. It prints to stdout.
type showCmd struct {
	connection

	JSON bool

	Name string
}

// line is its command line.
func (s *showCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show <name>",
		Short: "Show who holds a lock.",
		Long: `Shows who holds a lock on a quorum of nodes, since when by the holder's own clock, and how long it has left. Then it shows what each node says, and who waits for the lock, the next one first. If readers hold the lock, it lists them; it lists the permits of NAME as NAME#3, with their holders (NAME#3 given as <name> would be a lock). It changes nothing.

The handle that it shows unlocks the lock. If the lock has several names, it shows only the given one; unlocking that name ends the lock. In ZooKeeper and etcd only the holder knows when it last extended the lock: left, in JSON, is how long the lock is kept after that. Where the nodes do not tell all readers, permits and who waits, JSON says why in missing.

Arguments:

	<name>  The lock's name.

Exit codes:

	0   somebody holds the lock, or a permit of that name, or another program's key is in the way
	1   nobody holds it
	64  usage
	69  no quorum: too few nodes answered to tell
	77  a node refused (password, permission, wrong type, ...)`,
		Example: `  # who holds it, and for how long
  redlatch show job
  # for a script
  redlatch show --json job | jq -r .label
`,
		Args: commandline.Arguments(&s.Name),
	}
	flags := cmd.Flags()
	s.connection.addTo(flags)
	commandline.Bool(flags, &s.JSON, "json", "", "Print JSON.")
	return cmd
}

// exitFree is the exit code of `redlatch show` if nobody holds the lock.
const exitFree = 1

// Run asks the nodes and prints what they say.
func (s *showCmd) Run(out *printer) error {
	cfg, err := s.lockConfig()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), handleTimeout)
	defer cancel()
	asked := make(chan beside, 1)
	if s.ensemble == nil {
		go func() { asked <- lookBeside(ctx, cfg, s.Name) }()
	}
	client, err := s.open(cfg, out)
	if err != nil {
		return err
	}
	defer s.close(client, out)
	look, over := context.WithTimeout(context.Background(), handleTimeout) // opening may take as long
	defer over()
	holding, err := oneshot.New(client).Inspect(look, s.Name)
	if err != nil {
		return s.failure("show", s.Name, err)
	}
	var others beside
	if s.ensemble == nil {
		others = <-asked
	} else {
		others.waiting, others.err = client.Waiters(look, s.Name)
	}
	free := !keyIsThere(holding) && len(others.permits) == 0
	switch {
	case others.err != nil && free: // but somebody may hold a permit
		return s.failure("show", s.Name, others.err)
	case others.err != nil:
		out.warn("readers, permits or clients that wait may be missing: %v", others.err)
	}
	text := s.text(holding, others)
	if s.JSON {
		text = s.json(holding, others)
	}
	if _, err := os.Stdout.WriteString(text); err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	if free {
		return &outcome{code: exitFree}
	}
	return nil
}

// keyIsThere reports whether a quorum of nodes has a key, be it a foreign program's without a value.
func keyIsThere(h oneshot.Holding) bool { return h.Holder.ID != "" || h.Left != 0 }

func (s *showCmd) text(h oneshot.Holding, others beside) string {
	var text strings.Builder
	name := printable.Text(s.Name)
	switch {
	case !keyIsThere(h) && len(others.permits) > 0 && len(others.waiting) == 0:
		h.Nodes = nil // the name is used only for permits
	case !keyIsThere(h):
		fmt.Fprintf(&text, "%s: nobody holds it\n", name)
	case h.Holder.Shared || h.Holder.ID == "": // no handle unlocks it
		fmt.Fprintf(&text, "%s: held by %s\n", name, s.holdingText(h.Holder, h.Left))
	default:
		fmt.Fprintf(&text, "%s: held by %s\n  handle %s\n", name, s.holdingText(h.Holder, h.Left), printable.Text(h.Holder.ID))
	}
	for _, node := range h.Nodes {
		line := looked([]redlatch.NodeAnswer{node})[0]
		switch {
		case node.Verdict == redlatch.VoteHeld && keyIsThere(h) && node.Holder.ID == h.Holder.ID:
			line = node.Node + ": held, " + s.forHowLong(node.Left)
		case node.Verdict == redlatch.VoteHeld:
			line = node.Node + ": held by " + s.holdingText(node.Holder, node.Left)
		}
		fmt.Fprintf(&text, "  %s\n", oneLine(line))
	}
	others.write(&text, &s.connection)
	return text.String()
}

// forHowLong says how long a lock is kept. In an ensemble only the holder knows when it last
// extended the lock.
func (c *connection) forHowLong(left time.Duration) string {
	switch {
	case left < 0:
		return "for ever"
	case c.ensemble != nil:
		return "for " + short(left).String() + " after it was last extended"
	}
	return "expires in " + short(left).String()
}

// holderJSON is a holder in the output of --json. Times are in seconds. left is missing
// if the lock never expires.
type holderJSON struct {
	Shared bool     `json:"shared,omitempty"`
	Handle string   `json:"handle,omitempty"`
	Label  string   `json:"label,omitempty"`
	Since  string   `json:"since,omitempty"`
	Left   *float64 `json:"left,omitempty"`
}

func (s *showCmd) json(h oneshot.Holding, others beside) string {
	type nodeAnswer struct {
		Node string `json:"node"`
		Says string `json:"says"`
		holderJSON
		Error string `json:"error,omitempty"`
	}
	answer := struct {
		Name string `json:"name"`
		Held bool   `json:"held"`
		holderJSON
		Nodes   []nodeAnswer `json:"nodes"`
		Readers []holderJSON `json:"readers,omitempty"`
		Waiting []string     `json:"waiting"`
		Permits []permitJSON `json:"permits,omitempty"`
		Missing string       `json:"missing,omitempty"` // why readers, waiting and permits may lack some
	}{Name: s.Name, Held: keyIsThere(h), holderJSON: holderAsJSON(h.Holder, h.Left), Readers: readersAsJSON(others.readers), Waiting: labels(others.waiting), Permits: permitsAsJSON(others.permits), Missing: words(others.err)}
	for _, node := range h.Nodes {
		says := node.Verdict.String()
		switch node.Verdict {
		case redlatch.VoteHeld:
			says = "held"
		case redlatch.VoteNotOurs:
			says = "free"
		}
		answer.Nodes = append(answer.Nodes, nodeAnswer{node.Node, says, holderAsJSON(node.Holder, node.Left), words(node.Err)})
	}
	text, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(text) + "\n"
}

func holderAsJSON(h redlatch.Holder, left time.Duration) holderJSON {
	j := holderJSON{Handle: h.ID, Label: h.Label}
	if h.Shared {
		j.Shared, j.Handle = true, ""
	}
	if !h.Since.IsZero() {
		j.Since = h.Since.UTC().Format(time.RFC3339Nano)
	}
	if s := seconds(left.Round(time.Millisecond)); left > 0 || left == 0 && h.ID != "" {
		j.Left = &s
	}
	return j
}
