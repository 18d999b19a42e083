package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/printable"
)

// watchCmd is `redlatch watch`. It prints to stdout.
type watchCmd struct {
	connection

	JSON bool

	Name string
}

// line is its command line.
func (w *watchCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch <name>",
		Short: "Show who holds a lock or its permits, and every change.",
		Long: `Prints a line that says who holds a lock on a quorum of nodes, or that nobody does, also where a key without a value is in the way, and another line whenever that changes, until it is interrupted. It changes nothing. The servers notify it of changes. If they do not, as when the user may not use CLIENT TRACKING, it asks them every 1.5 s.

If readers hold the lock, it says so but does not name them; redlatch show does. It lists permits as NAME#3, with their holders, and says when a permit becomes free; it does not list permits that are free from the start. A holder that comes and goes within a moment may be missing, but an earlier holder never comes after a later one.

While too few nodes answer, it says so once on stderr. When enough of them answer again, it says who holds the lock and its permits.

Arguments:

	<name>  The lock's name.

Exit codes:

	64      usage
	128+n   signal n ended the command`,
		Example: `  # who leads, until Ctrl-C
  redlatch watch leader
  # tell a proxy who leads
  redlatch watch --json leader | while read -r line; do ./route "$line"; done
`,
		Args: commandline.Arguments(&w.Name),
	}
	flags := cmd.Flags()
	w.connection.addTo(flags)
	commandline.Bool(flags, &w.JSON, "json", "", "Print JSON, one object per line.")
	return cmd
}

// Run prints lines until a signal.
func (w *watchCmd) Run(out *printer) error {
	out, end := out.detached()
	defer end()
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
	var last []string // what the last error said, if no line came after it
	for {
		select {
		case line := <-lines:
			switch {
			case errors.Is(line.err, redlatch.ErrInvalid):
				return &outcome{code: exitUsage, err: line.err}
			case line.err != nil:
				said := failLines(w.failure("watch", w.Name, line.err))
				if !slices.Equal(said, last) { // permits may be refused as the lock is
					out.write(said...)
				}
				last = said
				continue
			}
			last = nil
			select {
			case err := <-writing(line.text):
				if err != nil {
					return unwritten(err)
				}
			case <-over:
			}
		case <-over:
			return signaled(ctx)
		}
	}
}

// watched is the next line to print, or the error that takes its place.
type watched struct {
	text string
	err  error
}

// watchLock sends a line for each holder of the lock until ctx is done.
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

// watchPermits sends a line for each permit whose holder has changed.
func (w *watchCmd) watchPermits(ctx context.Context, client *redlatch.Client, lines chan<- watched) {
	told, again := make(map[int]redlatch.Holder), false
	for held, err := range client.ObservePermits(ctx, w.Name) {
		switch again = again || err != nil; {
		case errors.Is(err, redlatch.ErrInvalid), errors.Is(err, redlatch.ErrNoQuorum): // watchLock reports it
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

// text returns the line about the holder of a lock, or of the permit with that slot.
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
		who = "a client without a label (" + printable.Text(h.ID) + ")"
	}
	if !h.Since.IsZero() {
		since = " since " + h.Since.Local().Format(time.DateTime)
	}
	return name + ": held by " + who + since + "\n"
}
