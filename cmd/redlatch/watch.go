package main

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/printable"
)

// watchCmd is `redlatch watch`. What it prints is what was asked for, so it goes to stdout.
type watchCmd struct {
	connection

	JSON bool

	Name string
}

// line is its command line.
func (w *watchCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch <name>",
		Short: "Say who holds a lock, and again when that changes.",
		Long: `Says who holds a lock on a quorum of nodes, or that nobody does, and again whenever that changes, a line each time, until it is interrupted. The servers tell it of changes; where they do not, as in a Redis Cluster, it looks every 1.5 s. It changes nothing. Of readers it says that they have the lock, not who they are; of permits nothing: redlatch show does. Holders that come and go within a moment may be missing, and an earlier one never comes after a later one.

While too few nodes answer, that is said once on standard error, and then who holds the lock when they do again.

Arguments:

	<name>  The lock's name.

Exit codes:

	64      usage
	128+n   signal n ended it`,
		Example: `  # who leads, until Ctrl-C
  redlatch watch leader
  # tell a proxy who leads
  redlatch watch --json leader | while read -r line; do ./route "$line"; done
`,
		Args: commandline.Arguments(&w.Name),
	}
	flags := cmd.Flags()
	w.connection.addTo(flags)
	commandline.Bool(flags, &w.JSON, "json", "", "Print JSON, one object on each line.")
	return cmd
}

// Run prints until a signal.
func (w *watchCmd) Run(out *printer) error {
	cfg, err := w.lockConfig()
	if err != nil {
		return err
	}
	client, err := w.open(cfg, out)
	if err != nil {
		return err
	}
	defer w.close(client, out)
	ctx, stop := commandline.UntilSignal()
	defer stop()
	for holder, err := range client.Observe(ctx, w.Name) {
		switch {
		case errors.Is(err, redlatch.ErrInvalid):
			return &outcome{code: exitUsage, err: err}
		case err != nil:
			out.say("%s", inFlags(w.failure("watch", w.Name, err).err.Error()))
			continue
		}
		if _, err := os.Stdout.WriteString(w.text(holder)); err != nil {
			return &outcome{code: exitSystem, err: err}
		}
	}
	return &outcome{code: signalCode(ctx)}
}

// text is a line on a holder.
func (w *watchCmd) text(h redlatch.Holder) string {
	if w.JSON {
		return mustJSON(json.Marshal(struct {
			Name string `json:"name"`
			Held bool   `json:"held"`
			holderJSON
		}{w.Name, h.ID != "", holderAsJSON(h, -1)}))
	}
	name, who, since := printable.Text(w.Name), printable.Text(h.Label), ""
	if h.ID == "" {
		return name + ": nobody holds it\n"
	}
	if h.Shared {
		who = "readers"
	} else if who == "" {
		who = "a client that gives no name (" + printable.Text(h.ID) + ")"
	}
	if !h.Since.IsZero() {
		since = " since " + h.Since.Local().Format(time.DateTime)
	}
	return name + ": held by " + who + since + "\n"
}
