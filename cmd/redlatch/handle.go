package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/oneshot"
)

// handleTimeout limits a call for a lock that another process has taken. The time
// limits of the single nodes are shorter.
const handleTimeout = 10 * time.Second

// handled has what commands need for a lock that another process has taken.
type handled struct {
	connection

	Name   string
	Handle string
}

// extendCmd is `redlatch extend`.
type extendCmd struct {
	handled

	TTL *time.Duration
}

// line is its command line.
func (e *extendCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extend <name> <handle>",
		Short: "Extend a lock by its handle.",
		Long: `Extends a lock that redlatch lock has taken. A lock that has run out is lost for good, even if nobody else has it: redlatch extend does not take it again. A server that has restarted without its keys does not get the lock again either: when a majority has, even one after the other, the lock is lost. redlatch run and redlatch lock --keep give it back.

Arguments:

	<name>    The lock's name.
	<handle>  What redlatch lock printed.

Exit codes:

	0   done
	64  usage, or the nodes have recorded other settings` + handleCodes,
		Example: `  # keep it for 25 s from now on
  redlatch extend --ttl 25 job "$handle"
`,
		Args: commandline.Arguments(&e.Name, &e.Handle),
	}
	flags := cmd.Flags()
	e.connection.addTo(flags)
	flags.Var(commandline.Optional(&e.TTL, commandline.Duration), "ttl", "How long the nodes keep the lock from now on. It never shortens the time that is left. Defaults to --max-ttl.")
	fromEnvironment(flags, "ttl")
	return cmd
}

// unlockCmd is `redlatch unlock`.
type unlockCmd struct {
	connection

	Force bool
	Yes   bool

	Name   string
	Handle *string
}

// line is its command line.
func (u *unlockCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock <name> [<handle>]",
		Short: "Release a lock by its handle.",
		Long: `Releases a lock that redlatch lock has taken. If an answer gets lost (69), the lock may have been released all the same: a second try may then find that it is not held any more (76).

Arguments:

	<name>    The lock's name.
	<handle>  What redlatch lock printed.

Exit codes:

	0   done
	64  usage` + handleCodes,
		Example: `  # show who holds a lock whose handle is lost, and release it
  redlatch unlock --force job
  # release what redlatch lock took
  redlatch unlock job "$handle" || echo "it was lost meanwhile"
`,
		Args: u.arguments,
	}
	flags := cmd.Flags()
	u.connection.addTo(flags)
	commandline.Bool(flags, &u.Force, "force", "", "Release the lock without a handle, whoever holds it. redlatch first says what that breaks, and asks.")
	commandline.Bool(flags, &u.Yes, "yes", "", "Do not ask. Needed for --force if stdin is not a terminal.")
	return cmd
}

// arguments takes the name, and the handle if there is one.
func (u *unlockCmd) arguments(cmd *cobra.Command, args []string) error {
	var handle string
	if len(args) > 1 {
		u.Handle = &handle
	}
	return commandline.Arguments(&u.Name, &handle)(cmd, args)
}

const handleCodes = `
	69  no quorum: too few nodes answered; the lock may have been changed or not
	76  the lock is not held under this handle any more; stderr says who holds it
	77  a node refused (password, permission, wrong type, ...)`

// Run extends the lock.
func (e *extendCmd) Run(out *printer) error {
	ttl := orMaxTTL(e.TTL, e.connection)
	if err := e.checkTTL(ttl); err != nil {
		return err
	}
	return e.call(out, "extend", func(ctx context.Context, c *oneshot.Client) (bool, error) {
		return c.Extend(ctx, e.Name, e.Handle, ttl)
	})
}

// Run releases the lock.
func (u *unlockCmd) Run(out *printer) error {
	switch {
	case u.Force && u.Handle != nil:
		return usage("leave out the handle to release the lock whoever holds it, or leave out --force", "both --force and a handle")
	case u.Yes && !u.Force:
		return usage("leave --yes out", "--yes without --force")
	case u.Force:
		return u.force(out)
	case u.Handle == nil:
		return usage("give what redlatch lock printed; redlatch show says who holds the lock, and redlatch unlock --force takes it from them", "missing <handle>")
	}
	h := handled{u.connection, u.Name, *u.Handle}
	return h.call(out, "unlock", func(ctx context.Context, c *oneshot.Client) (bool, error) {
		return c.Release(ctx, u.Name, *u.Handle)
	})
}

func (h *handled) call(out *printer, doing string, f func(context.Context, *oneshot.Client) (bool, error)) error {
	if h.Handle == "" { // a script's redlatch lock has failed
		return usage("give what redlatch lock printed; redlatch show says who holds the lock", "the <handle> is empty")
	}
	cfg, err := h.lockConfig()
	if err != nil {
		return err
	}
	if h.ensemble != nil {
		cfg.MaxTTL = h.MaxTTL // the lock's TTL may be that long
	}
	client, err := h.open(cfg, out)
	if err != nil {
		return err
	}
	defer h.close(client, out)
	ctx, cancel := context.WithTimeout(context.Background(), handleTimeout)
	defer cancel()
	shots := oneshot.New(client)
	ours, err := f(ctx, shots)
	switch {
	case err != nil:
		return h.failure(doing, h.Name, err)
	case ours:
		return nil
	}
	who := "nobody holds it"
	switch holding, err := shots.Inspect(ctx, h.Name); {
	case err != nil:
		who = "it is not known who holds it: " + err.Error()
	case holding.Holder.ID == h.Handle:
		who = "but now it is" // by a late command of the process that took it
	case keyIsThere(holding):
		who = "held by another: " + h.holdingText(holding.Holder, holding.Left)
	}
	return &outcome{code: exitLost, err: fmt.Errorf("cannot %s %q: %w under this handle; %s", doing, h.Name, errNotHeld, who)}
}

var errNotHeld = errors.New("it is not held")

// checkTTL refuses a TTL that the nodes would not keep.
func (c *connection) checkTTL(ttl time.Duration) error {
	switch {
	case c.MaxTTL < time.Millisecond: // it is the TTL if no other is given
		return usage("a few seconds are usual", "--max-ttl %v is less than 1ms", c.MaxTTL)
	case ttl > c.MaxTTL && c.onEnsemble():
		return usage("raise --max-ttl", "--ttl %v is more than --max-ttl %v", ttl, c.MaxTTL)
	case ttl > c.MaxTTL:
		return usage("raise --max-ttl for all clients: "+c.raiseHint(ttl), "--ttl %v is more than --max-ttl %v", ttl, c.MaxTTL)
	case ttl < time.Millisecond:
		return usage("a few seconds are usual", "--ttl %v is less than 1ms", ttl)
	}
	return nil
}

// orMaxTTL returns the TTL that was given, or else the longest one, as nobody renews the lock.
func orMaxTTL(ttl *time.Duration, c connection) time.Duration {
	if ttl == nil {
		return c.MaxTTL
	}
	return *ttl
}
