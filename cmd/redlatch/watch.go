package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
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
		Short: "Say who holds a lock or its permits, and again when that changes.",
		Long: `Says who holds a lock on a quorum of nodes, or that nobody does, and again whenever that changes, a line each time, until it is interrupted. The servers tell it of changes; where they do not, as when the user may not use CLIENT TRACKING, it looks every 1.5 s. It changes nothing. Of readers it says that they have the lock, not who they are: redlatch show does. Of permits it says which is held by whom, as NAME#3, and that nobody holds one any more; that none is held it does not say. Holders that come and go within a moment may be missing, and an earlier one never comes after a later one.

While too few nodes answer, that is said once on standard error, and then who holds the lock and its permits when they do again.

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
	watching, cancel := context.WithCancel(ctx)
	lines := make(chan watched)
	var ranges sync.WaitGroup
	ranges.Go(func() { w.watchLock(watching, client, lines) })
	if w.ensemble == nil {
		ranges.Go(func() { w.watchPermits(watching, client, lines) })
	}
	over := make(chan struct{})
	go func() { ranges.Wait(); close(over) }()
	defer func() { cancel(); <-over }()
	for {
		select {
		case line := <-lines:
			switch {
			case errors.Is(line.err, redlatch.ErrInvalid):
				return &outcome{code: exitUsage, err: line.err}
			case line.err != nil:
				out.say("%s", inFlags(w.failure("watch", w.Name, line.err).err.Error()))
				continue
			}
			if _, err := os.Stdout.WriteString(line.text); err != nil {
				return &outcome{code: exitSystem, err: err}
			}
		case <-over:
			return &outcome{code: signalCode(ctx)}
		}
	}
}

// watched is what is to be said next: a text, or why there is none.
type watched struct {
	text string
	err  error
}

// watchLock sends who holds the lock until ctx is done.
func (w *watchCmd) watchLock(ctx context.Context, client *redlatch.Client, lines chan<- watched) {
	for holder, err := range client.Observe(ctx, w.Name) {
		line := watched{err: err}
		if err == nil {
			line.text = w.text(w.Name, holder, nil)
		}
		if !send(ctx, lines, line) {
			return
		}
	}
}

// watchPermits sends who holds which permit, a line for each that has changed.
func (w *watchCmd) watchPermits(ctx context.Context, client *redlatch.Client, lines chan<- watched) {
	told, again := make(map[int]redlatch.Holder), false
	for held, err := range client.ObservePermits(ctx, w.Name) {
		switch again = again || err != nil; {
		case errors.Is(err, redlatch.ErrInvalid), errors.Is(err, redlatch.ErrNoQuorum): // the lock's watch says so
			continue
		case err != nil:
			if !send(ctx, lines, watched{err: err}) {
				return
			}
			continue
		}
		now := make(map[int]redlatch.Holder)
		for _, permit := range held {
			now[permit.Slot] = permit.Holder
		}
		slots := slices.AppendSeq(slices.Collect(maps.Keys(now)), maps.Keys(told))
		slices.Sort(slots)
		for _, slot := range slices.Compact(slots) {
			if now[slot].ID == told[slot].ID && !again {
				continue
			}
			if !send(ctx, lines, watched{text: w.text(w.Name+"#"+strconv.Itoa(slot), now[slot], &slot)}) {
				return
			}
		}
		told, again = now, false
	}
}

// send reports whether the line was taken before ctx was done.
func send(ctx context.Context, lines chan<- watched, line watched) bool {
	select {
	case lines <- line:
		return true
	case <-ctx.Done():
		return false
	}
}

// text is a line on the holder of a lock, or of the permit of a slot.
func (w *watchCmd) text(name string, h redlatch.Holder, slot *int) string {
	if w.JSON {
		holder := holderAsJSON(h, -1)
		if slot != nil {
			holder.Handle = ""
		}
		return mustJSON(json.Marshal(struct {
			Name string `json:"name"`
			Held bool   `json:"held"`
			Slot *int   `json:"slot,omitempty"`
			holderJSON
		}{name, h.ID != "", slot, holder}))
	}
	name, who, since := printable.Text(name), printable.Text(h.Label), ""
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
