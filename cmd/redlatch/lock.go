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
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/oneshot"
)

// lockCmd is `redlatch lock`. It prints the handle to stdout.
type lockCmd struct {
	acquisition

	TTL    *time.Duration
	JSON   bool
	Keep   bool
	Parent *int

	// Keeper: this process is the one that --keep leaves behind.
	Keeper bool
}

// line is its command line.
func (l *lockCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lock <name>",
		Short: "Take a lock and print a handle to extend and unlock it.",
		Long: `Prints a handle on one line. With the handle, any process can extend and unlock the lock:

	handle=$(redlatch lock --ttl 25s job) || exit
	...
	redlatch unlock job "$handle" || echo "it was lost meanwhile"

To hold the lock for longer than --max-ttl, or for as long as the work takes:

	handle=$(redlatch lock --keep --parent $$ job) || exit

With --keep, redlatch leaves a process behind that renews the lock until redlatch unlock releases it, until process $$ ends, or until the renewing process gets SIGTERM. After redlatch unlock, that process ends within a third of the TTL. Without --parent, a script that dies leaves the lock held until somebody unlocks it.

In ZooKeeper and etcd, a lock that nobody unlocks and that nobody waits for ends a little after twice its TTL.

Nobody watches the work that runs under the lock. Without --keep the lock ends when its TTL has passed, even if the work goes on. With --keep it ends when no quorum of nodes can be reached for that long. redlatch run renews the lock, and kills the command when the lock is lost: use it wherever you can. --label defaults to the machine and the process that called redlatch.

Arguments:

	<name>  The lock's name.

Exit codes:

	0      locked
	64     usage, the nodes have recorded other settings, or an enclosing redlatch run holds the lock
	69     no quorum: too few nodes answered or were admitted
	71     the handle could not be printed, or --keep could not start its process; the lock was released
	75     another client holds the lock (-E sets another code)
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
	flags.Var(commandline.Optional(&l.TTL, commandline.Duration), "ttl", "How long the nodes keep the lock. Only redlatch extend and --keep renew it. Defaults to --max-ttl, but with --keep to at most 10s.")
	commandline.Bool(flags, &l.JSON, "json", "", "Print name, handle, token, until, ttl and nodes as JSON.")
	commandline.Bool(flags, &l.Keep, "keep", "", "Leave a process behind that renews the lock until somebody unlocks it, or until the process of --parent ends.")
	flags.Var(commandline.Optional(&l.Parent, commandline.Int), "parent", "Release the lock when process `PID` ends; $$ is the calling shell. Needs --keep.")
	for _, name := range []string{"shared", "permits"} {
		flags.Func(name, "", func(string) error {
			return errors.New("a handle is for a lock with one holder: use redlatch run --" + name)
		})
		flags.Lookup(name).NoOptDefVal = "1" // the flag is refused with and without a value
		flags.Lookup(name).Hidden = true
	}
	commandline.Bool(flags, &l.Keeper, "keeper", "", "")
	flags.Lookup("keeper").Hidden = true
	fromEnvironment(flags, "ttl")
	return cmd
}

// printTimeout limits the requests between taking the lock and printing its handle.
const printTimeout = 5 * time.Second

// check refuses flags that cannot work, before anything is sent.
func (l *lockCmd) check(ttl time.Duration) error {
	switch {
	case l.Parent != nil && !l.Keep:
		return usage("add --keep, or leave --parent out: without --keep the lock ends with its TTL", "--parent without --keep")
	case l.Parent != nil && (*l.Parent <= 0 || !processExists(*l.Parent)) && !l.Keeper:
		return usage("--parent $$ is the shell that calls redlatch", "--parent %d is not a running process", *l.Parent)
	case ttl > l.MaxTTL && !l.Keep && l.onEnsemble():
		return usage("redlatch lock --keep renews a lock for as long as you need it; or raise --max-ttl", "--ttl %v is more than --max-ttl %v", ttl, l.MaxTTL)
	case ttl > l.MaxTTL && !l.Keep:
		return usage("redlatch lock --keep renews a lock for as long as you need it; or raise --max-ttl for all clients: "+l.raiseHint(ttl), "--ttl %v is more than --max-ttl %v", ttl, l.MaxTTL)
	case l.Keep:
		return l.checkRenewed(ttl)
	}
	return l.acquisition.check(ttl)
}

// ttl returns the TTL that was given, or the default.
func (l *lockCmd) ttl() time.Duration {
	if l.Keep && l.TTL == nil {
		return min(keptTTL, l.MaxTTL)
	}
	return orMaxTTL(l.TTL, l.connection)
}

// Run takes the lock and prints its handle. Whoever has the handle has the lock then.
func (l *lockCmd) Run(out *printer) (err error) {
	if l.Keeper {
		defer func() { // by its exit code the caller knows that it has said so
			if end, ok := errors.AsType[*outcome](err); ok {
				end.signal = 0
			}
		}()
	}
	out.level = l.level()
	out, flushed := out.detached()
	defer flushed()
	ttl := l.ttl()
	if err := l.check(ttl); err != nil {
		return err
	}
	switch {
	case l.Keeper:
		l.takeSettled()
	case l.Keep:
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
	client, err := l.open(cfg, sigs, out)
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

// label returns the label of the lock. By default it names the caller, who will have the lock.
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
	if end := l.handOut(client, lock, sigs, ttl); end != nil {
		release(lock, out)
		return end
	}
	return nil
}

// handOut prints the handle. It fails if the lock is not held any more when the handle is printed,
// and does not wait for a reader of stdout beyond the end of the lock, or beyond a signal.
func (l *lockCmd) handOut(client *redlatch.Client, lock *redlatch.Lock, sigs signals, ttl time.Duration) *outcome {
	if end := l.print(l.text(client, lock, ttl), lock.Context().Done(), sigs); end != nil {
		return end
	}
	if _, err := lock.Detach(); err != nil {
		return &outcome{code: exitLost, err: err}
	}
	return nil
}

// print prints the handle. It does not wait for a reader of stdout beyond the end of over, if there is
// one, which it does not report, or beyond a signal.
func (l *lockCmd) print(handle string, over <-chan struct{}, sigs signals) *outcome {
	written := writing(handle)
	for {
		select {
		case err := <-written:
			if err != nil {
				return l.unprinted(err)
			}
			return nil
		case <-over:
			return nil
		case sig := <-sigs:
			if stops(sig) {
				return interrupted(sig, l.quoted())
			}
		}
	}
}

// unprinted is the outcome if the handle could not be printed.
func (l *lockCmd) unprinted(err error) *outcome {
	return &outcome{code: exitSystem, err: fmt.Errorf("cannot print the handle of %q: %w", l.Name, err)}
}

// text returns what the command prints: the handle, with --json as a part of an object.
func (l *lockCmd) text(client *redlatch.Client, lock *redlatch.Lock, ttl time.Duration) string {
	handle, until := hook.LeaseOf(lock).HolderID(), lock.Until()
	if !l.JSON {
		return handle + "\n"
	}
	ctx, cancel := context.WithTimeout(context.Background(), printTimeout)
	defer cancel()
	nodes := []string{}
	holding, _ := oneshot.New(client).Inspect(ctx, l.Name) // nodes that do not answer are left out
	for _, node := range holding.Nodes {
		if node.Holder.ID == handle {
			nodes = append(nodes, node.Node)
		}
	}
	return mustJSON(json.Marshal(struct {
		Name   string   `json:"name"`
		Handle string   `json:"handle"`
		Token  uint64   `json:"token"`
		Until  string   `json:"until"`
		TTL    float64  `json:"ttl"` // in seconds
		Nodes  []string `json:"nodes"`
	}{l.Name, handle, lock.Token(), until.UTC().Format(deadlineFormat), seconds(ttl), nodes}))
}
