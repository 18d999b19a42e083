//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/oneshot"
)

// lockCmd is `redlatch lock`. The handle is what was asked for, so it goes to
// stdout.
type lockCmd struct {
	acquisition

	TTL    *time.Duration
	JSON   bool
	Keep   bool
	Parent *int

	// Keeper: this is the process that --keep leaves behind.
	Keeper bool
	// kept is closed when its caller may go.
	kept chan struct{}
}

// line is its command line.
func (l *lockCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lock <name>",
		Short: "Take a lock and print the handle to extend and unlock it by.",
		Long: `Prints a handle, on one line, with which any process extends the lock and unlocks it:

	handle=$(redlatch lock --ttl 25s job) || exit
	...
	redlatch unlock job "$handle" || echo "it was lost meanwhile"

For longer than --max-ttl, or for as long as it takes:

	handle=$(redlatch lock --keep --parent $$ job) || exit

A process that is left behind renews the lock until redlatch unlock, until the process $$ has ended, or until it gets SIGTERM; after unlock it is gone within a third of the TTL. Without --parent, a script that dies leaves the lock held until somebody unlocks it.

In ZooKeeper and etcd, a lock that nobody unlocks and nobody waits for ends when its TTL has passed twice and a little more.

Nobody watches over what runs under the lock: without --keep it ends when its TTL has passed, whatever still runs, and with it when no quorum of nodes can be reached for so long. redlatch run renews it and kills what has lost it, and is the better choice wherever it can be used. --label defaults to the machine and the process that called redlatch.

Arguments:

	<name>  The lock's name.

Exit codes:

	0      locked
	64     usage
	69     no quorum: too few nodes answered or were admitted
	71     the handle could not be printed, or --keep could start no process; the lock was released
	75     held by another (-E sets another code)
	76     the lock ran out before its handle could be printed
	77     a node refused (password, permission, wrong type, ...)
	128+n  signal n ended the wait for the lock`,
		Example: `  # take a lock in a script, for 25 s
  handle=$(redlatch lock -w 10 --ttl 25 job) || exit
  # for as long as this script runs, or until it unlocks it
  handle=$(redlatch lock --keep --parent $$ job) || exit
`,
		Args: commandline.Arguments(&l.Name),
	}
	flags := cmd.Flags()
	l.acquisition.addTo(flags)
	flags.Var(commandline.Optional(&l.TTL, commandline.Duration), "ttl", "How long the nodes keep the lock. Nothing renews it but redlatch extend, or --keep. Defaults to --max-ttl, with --keep to 10s at most.")
	commandline.Bool(flags, &l.JSON, "json", "", "Print name, handle, token, until, ttl and nodes as JSON.")
	commandline.Bool(flags, &l.Keep, "keep", "", "Leave a process behind that renews the lock until it is unlocked, or until --parent ends.")
	flags.Var(commandline.Optional(&l.Parent, commandline.Int), "parent", "Release the lock when this process, `PID`, ends; $$ is the shell itself. Needs --keep.")
	for _, name := range []string{"shared", "permits"} {
		flags.Func(name, "", func(string) error {
			return errors.New("a handle is a lock's, which one holder has: use redlatch run --" + name)
		})
		flags.Lookup(name).NoOptDefVal = "1" // whatever may follow
		flags.Lookup(name).Hidden = true
	}
	commandline.Bool(flags, &l.Keeper, "keeper", "", "")
	flags.Lookup("keeper").Hidden = true
	fromEnvironment(flags, "ttl")
	return cmd
}

// printTimeout bounds what is done about a lock that is held already.
const printTimeout = 5 * time.Second

// check refuses flags that cannot work, before anything is sent.
func (l *lockCmd) check(ttl time.Duration) error {
	switch {
	case l.Parent != nil && !l.Keep:
		return usage("give --keep, or leave it out: without --keep the lock ends with its TTL", "--parent without --keep")
	case l.Parent != nil && (*l.Parent <= 0 || !processExists(*l.Parent)) && !l.Keeper:
		return usage("--parent $$ is the shell that calls redlatch", "--parent %d is no process that runs", *l.Parent)
	case ttl > l.MaxTTL && !l.Keep && l.onEnsemble():
		return usage("redlatch lock --keep renews a lock for as long as it is needed; or raise --max-ttl", "--ttl %v is more than --max-ttl %v", ttl, l.MaxTTL)
	case ttl > l.MaxTTL && !l.Keep:
		return usage("redlatch lock --keep renews a lock for as long as it is needed; or raise --max-ttl, for all clients, with redlatch deployment set", "--ttl %v is more than --max-ttl %v", ttl, l.MaxTTL)
	case ttl > l.MaxTTL:
		return usage("leave --ttl out: with --keep the lock is renewed for as long as it is needed", "--ttl %v is more than --max-ttl %v", ttl, l.MaxTTL)
	}
	if err := l.acquisition.check(ttl); err != nil || !l.Keep {
		return err
	}
	return checkRenewed(ttl)
}

// ttl is the TTL that was given, or the default.
func (l *lockCmd) ttl() time.Duration {
	if l.Keep && l.TTL == nil {
		return min(keptTTL, l.MaxTTL)
	}
	return orMaxTTL(l.TTL, l.connection)
}

// Run takes the lock, prints the handle and leaves the lock to who has it.
func (l *lockCmd) Run(out *printer) error {
	out.level = l.level()
	ttl := l.ttl()
	if err := l.check(ttl); err != nil {
		return err
	}
	if l.Keep && !l.Keeper {
		return l.leaveKeeper(out)
	}
	cfg, _, err := l.configure(ttl, out)
	if err != nil {
		return err
	}
	cfg.Label = l.label()
	sigs := catchSignals()
	if l.Keeper {
		l.watchCaller(sigs)
	}
	client, err := l.open(cfg, out)
	if err != nil {
		return err
	}
	end := l.locked(client, sigs, ttl, out)
	if end != nil && end.abrupt {
		return end
	}
	if end != nil && !end.released {
		if err := client.Close(); err != nil {
			out.detail("closing: %v", err)
		}
		return end
	}
	l.close(client, out)
	if end != nil {
		return end
	}
	return nil
}

// label is who we say we are: the caller, who will have the lock.
func (l *lockCmd) label() string {
	if l.Label != "" {
		return l.Label
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%.48s:%d", host, os.Getppid())
}

func (l *lockCmd) locked(client *redlatch.Client, sigs signals, ttl time.Duration, out *printer) *outcome {
	renewal := redlatch.WithoutRenewal()
	if l.Keep {
		renewal = redlatch.WithMaxHold(forever)
	}
	lock, end := l.acquire(client, sigs, out, []redlatch.Option{
		redlatch.WithTTL(ttl),
		renewal,
		redlatch.WithLabel(l.label()),
		redlatch.WithWaitReport(l.waitReport(out)),
	})
	if end != nil {
		return end
	}
	if sig := sigs.pending(); sig != nil {
		release(lock, out)
		return interrupted(sig, l.quoted())
	}
	if l.Keeper {
		return l.keep(client, lock, sigs, ttl, out)
	}
	until := lock.Until()
	handle, err := lock.Detach()
	if err != nil { // stopped since it was granted
		release(lock, out)
		return &outcome{code: exitLost, err: err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), printTimeout)
	defer cancel()
	if err := l.print(ctx, client, lock, handle, until, ttl); err != nil {
		if _, err := oneshot.New(client).Release(ctx, l.Name, handle); err != nil {
			out.warn("could not release %q, it expires by itself: %v", l.Name, err)
		}
		return &outcome{code: exitSystem, err: fmt.Errorf("cannot print the handle of %q: %w", l.Name, err)}
	}
	return nil
}

func (l *lockCmd) print(ctx context.Context, client *redlatch.Client, lock *redlatch.Lock, handle string, until time.Time, ttl time.Duration) error {
	if !l.JSON {
		_, err := fmt.Println(handle)
		return err
	}
	nodes := []string{}
	holding, _ := oneshot.New(client).Inspect(ctx, l.Name) // nodes that do not answer now are left out
	for _, node := range holding.Nodes {
		if node.Holder.ID == handle {
			nodes = append(nodes, node.Node)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(struct {
		Name   string   `json:"name"`
		Handle string   `json:"handle"`
		Token  uint64   `json:"token"`
		Until  string   `json:"until"`
		TTL    float64  `json:"ttl"` // in seconds
		Nodes  []string `json:"nodes"`
	}{l.Name, handle, lock.Token(), until.UTC().Format(deadlineFormat), ttl.Seconds(), nodes})
}
