package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/printable"
)

// listCmd is `redlatch list`. It prints to stdout.
type listCmd struct {
	connection

	JSON  bool
	Watch bool
	Every *time.Duration
	Ours  bool

	Pattern string
}

// line is its command line.
func (l *listCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [<pattern>]",
		Short: "List all locks.",
		Long: `Lists all locks: who holds each one, since when by the holder's own clock, how long it has left unless it is renewed, how many clients wait for it, and how many nodes have it. It reads all keys of the servers with SCAN, in small steps that block nobody, and changes nothing. A lock that is taken or released meanwhile may be missing.

A lock of several names has a line for each name, with the same handle. The table has the number of readers, and --json lists them. In JSON, held is null where the nodes that did not answer decide. Bytes of a name that are no UTF-8 are U+FFFD in JSON, and escaped in the table. Permits are listed as NAME#3, for redlatch show NAME; a client that waits for a permit is counted on each permit of that name.

Strings of 1 to 512 bytes that expire and are not redlatch's are marked as foreign: they are locks of other libraries, or no locks. Keys that the user may not read are left out, which is said. redlatch cannot list the locks of a Redis Cluster. In ZooKeeper and etcd all locks are redlatch's, and each is on 1 of 1 nodes.

Arguments:

	<pattern>  Which names to list, as a glob pattern with *, ? and [a-c]. Defaults to all.

Exit codes:

	0      all locks were listed, even if there are none
	64     usage
	69     no quorum: too few nodes answered; without --json, the locks on those are listed
	77     a node refused (password, permission, ...)
	128+n  signal n ended the command`,
		Example: `  # all locks of the shop
  redlatch list 'shop/*'
  # watch the locks until Ctrl-C
  redlatch list --watch --ours
  # for a script: the names that somebody waits for
  redlatch list --json | jq -r '.[] | select(.waiting != []) | .name'
`,
		Args: commandline.Arguments(&l.Pattern),
	}
	flags := cmd.Flags()
	l.Pattern = "*"
	l.connection.addTo(flags)
	commandline.Bool(flags, &l.JSON, "json", "", "Print JSON: an array, or with --watch an array per line. While too few nodes answer it is an object that says why, or nothing with --watch.")
	commandline.Bool(flags, &l.Watch, "watch", "", "List again and again, at the interval --every, until interrupted.")
	flags.Var(commandline.Optional(&l.Every, commandline.Duration), "every", "How long --watch waits between two listings. Defaults to 2s.")
	commandline.Bool(flags, &l.Ours, "ours", "", "Leave out keys that are not redlatch's.")
	return cmd
}

// Run lists the locks once, or again and again until a signal.
func (l *listCmd) Run(out *printer) error {
	out, end := out.detached()
	defer end()
	cfg, err := l.lockConfig()
	if err != nil {
		return err
	}
	every := 2 * time.Second
	switch {
	case l.Every != nil && !l.Watch:
		return usage("add --watch, or leave --every out", "--every %v without --watch", *l.Every)
	case l.Every != nil && *l.Every <= 0:
		return usage("give a number of seconds above 0", "--every %v is not positive", *l.Every)
	case l.Every != nil:
		every = *l.Every
	}
	ctx, stop := commandline.UntilSignal()
	defer stop()
	nodes := len(cfg.Nodes)
	list := func(ctx context.Context) ([]redlatch.Listed, []redlatch.NodeAnswer, error) {
		return redlatch.List(ctx, cfg, l.Pattern)
	}
	if l.ensemble != nil {
		client, err := l.open(cfg, out)
		if err != nil {
			return err
		}
		defer l.close(client, out)
		nodes = 1
		list = func(ctx context.Context) ([]redlatch.Listed, []redlatch.NodeAnswer, error) {
			return client.List(ctx, l.Pattern)
		}
	} else {
		l.sayNodes(out)
	}
	for {
		listed, answers, err := list(ctx)
		if ctx.Err() == nil {
			if err := l.print(ctx, listed, answers, err, nodes, out); err != nil || !l.Watch {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return signaled(ctx)
		case <-time.After(every):
		}
	}
}

// print prints the locks that were found. With --watch it reports a failure and returns nil,
// unless the next listing would fail in the same way.
func (l *listCmd) print(ctx context.Context, listed []redlatch.Listed, answers []redlatch.NodeAnswer, failed error, of int, out *printer) error {
	if errors.Is(failed, redlatch.ErrInvalid) {
		return &outcome{code: exitUsage, err: failed}
	}
	if l.Ours {
		ours := listed[:0]
		for _, lock := range listed {
			if !lock.Foreign {
				ours = append(ours, lock)
			}
		}
		listed = ours
	}
	text := l.table(listed, of)
	switch {
	case l.JSON && failed != nil: // an array would say that there are no other locks
		text = ""
	case l.JSON:
		text = l.json(listed, answered(answers), of)
	case l.Watch && term.IsTerminal(int(os.Stdout.Fd())):
		text = "\x1b[H\x1b[2J" + time.Now().Format(time.TimeOnly) + "\n" + text
	}
	select {
	case err := <-writing(text):
		if err != nil {
			return unwritten(err)
		}
	case <-ctx.Done():
		return signaled(ctx)
	}
	if failed != nil {
		end := l.failure("list", l.Pattern, failed)
		if _, ok := errors.AsType[*redlatch.QuorumError](failed); ok {
			for i, node := range answers {
				if node.Verdict == redlatch.VoteGranted {
					end.details[i] = node.Node + ": answered"
				}
			}
		}
		if l.Watch {
			out.write(failLines(end)...)
			return nil
		}
		return end
	}
	for _, node := range answers {
		switch {
		case node.Err == nil || l.Watch:
		case node.Verdict == redlatch.VoteGranted:
			out.say("%s: %s", node.Node, oneLine(words(node.Err)))
		default:
			out.say("%s is left out: %s", node.Node, oneLine(words(node.Err)))
		}
	}
	return nil
}

func (l *listCmd) table(listed []redlatch.Listed, of int) string {
	if len(listed) == 0 {
		return ""
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tHOLDER\tSINCE\tLEFT\tWAITING\tNODES")
	for _, lock := range listed {
		holder, since, left := "-", "-", "-"
		switch {
		case lock.Holder.ID == "":
			holder = "nobody"
		case lock.Foreign:
			holder = "foreign: " + shortened(printable.Text(lock.Holder.ID))
		case lock.Holder.Shared:
			holder = readersText(lock.Readers)
		default:
			holder, since = printable.Text(lock.Holder.Label), sinceText(lock.Holder.Since)
		}
		if lock.Holder.ID != "" {
			if left = short(lock.Left).String(); lock.Left < 0 {
				left = "for ever"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d of %d\n", printable.Text(lock.Name), holder, since, left, len(lock.Waiting), lock.Nodes, of)
	}
	_ = table.Flush() // a strings.Builder takes all
	return text.String()
}

// answered returns the number of nodes that answered.
func answered(answers []redlatch.NodeAnswer) (n int) {
	for _, node := range answers {
		if node.Verdict == redlatch.VoteGranted {
			n++
		}
	}
	return n
}

// shortened cuts a foreign value to what a table has room for.
func shortened(text string) string {
	if runes := []rune(text); len(runes) > 24 {
		return string(runes[:24]) + "…"
	}
	return text
}

// isHeld reports whether a lock is held that so many nodes have, of those that were heard. It is nil
// where the others decide.
func isHeld(have, heard, of int) *bool {
	need := of/2 + 1
	held := have >= need
	if !held && have+of-heard >= need {
		return nil
	}
	return &held
}

func (l *listCmd) json(listed []redlatch.Listed, heard, of int) string {
	type lock struct {
		Name string `json:"name"`
		Held *bool  `json:"held"`
		holderJSON
		Slot    *int         `json:"slot,omitempty"`
		Readers []holderJSON `json:"readers,omitempty"`
		Foreign bool         `json:"foreign"`
		Waiting []string     `json:"waiting"`
		Nodes   int          `json:"nodes"`
		Of      int          `json:"of"`
	}
	locks := make([]lock, len(listed))
	for i, found := range listed {
		locks[i] = lock{found.Name, isHeld(found.Nodes, heard, of), holderAsJSON(found.Holder, found.Left), nil, readersAsJSON(found.Readers), found.Foreign, labels(found.Waiting), found.Nodes, of}
		if found.Permit {
			locks[i].Slot, locks[i].Handle = &found.Slot, ""
		}
	}
	if l.Watch {
		return mustJSON(json.Marshal(locks))
	}
	return mustJSON(json.MarshalIndent(locks, "", "  "))
}

// mustJSON returns the encoder's text with a line break. The encoder cannot fail, as all values
// are strings and numbers.
func mustJSON(text []byte, err error) string {
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(text) + "\n"
}

// labels returns the labels of the clients that wait.
func labels(waiting []redlatch.Waiter) []string {
	names := make([]string, len(waiting))
	for i, waiter := range waiting {
		names[i] = waiter.Label
	}
	return names
}

// signaled is the outcome of a command that a signal ended.
func signaled(ctx context.Context) *outcome {
	if ended, ok := errors.AsType[*commandline.SignalError](context.Cause(ctx)); ok {
		return &outcome{code: ended.Code(), signal: syscall.Signal(ended.Code() - exitSignal)}
	}
	return &outcome{code: exitInternal}
}
