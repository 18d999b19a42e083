//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// runCmd is `redlatch run`.
type runCmd struct {
	acquisition

	TTL     time.Duration
	MinHold time.Duration
	MaxRun  time.Duration
	Grace   time.Duration

	OwnGroup bool

	// Shared: as a reader.
	Shared bool

	Shell *string

	Command []string
}

// line is its command line.
func (r *runCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] (NAME... -- COMMAND [ARG...] | NAME -c STRING)",
		Short: "Run a command while holding a lock.",
		Long: `COMMAND finds REDLATCH_NAME, REDLATCH_TOKEN (the fencing token) and REDLATCH_DEADLINE (until when the lock was certain to be held as COMMAND started; it is renewed) in its environment. Its stdin, stdout and stderr are ours.

Several NAMEs are one lock: it is held on all of them or on none, with one token, which is larger than each name's earlier ones, and is lost as soon as one name is lost. Runs for several names do not deadlock, whatever the order of the names; REDLATCH_NAME is the first, and REDLATCH_NAMES has all, one a line. In a Redis Cluster the names must be in one slot, as {shop}/a and {shop}/b are.

With --shared any number of runs have the lock together, and a run without it has it alone: readers and a writer. A writer who waits goes before readers who come later. With --permits K as many as K runs have one of K permits of NAME each: COMMAND finds in REDLATCH_SLOT which, from 0 to K-1, and no two have the same. Permits and the lock of the same name do not exclude each other. ZooKeeper and etcd lock one name at a time, without readers and permits.

COMMAND stays in the process group that redlatch is in, as with flock: Ctrl-C and Ctrl-Z reach both. INT, TERM, HUP, QUIT, USR1, USR2 and WINCH that are sent to redlatch alone are passed on to COMMAND and what it started in that group; signals that were ignored as redlatch started stay so. INT, TERM, HUP and QUIT end the wait for the lock. With --own-group COMMAND leads a group of its own. What COMMAND leaves running when it ends by itself goes on without the lock.

When the lock is lost, COMMAND and what it started in its group get SIGTERM at once, and all that it started, in whatever group or session, gets SIGKILL before the lock can pass to another. Two guard processes do that when redlatch itself is killed or stopped for too long. A job stopped with Ctrl-Z is not renewed: it goes on if it is continued in time, which is told, else it is killed.

Not killed is what redlatch may not send signals to, such as what sudo runs for a user other than root: that is said at once, with its pid, and the exit code is 76 all the same. Nor is what a service such as docker or systemd runs at COMMAND's request. Without /proc, COMMAND gets a group of its own, and only that is killed.

Arguments:

	NAME     The lock's name, or the names of one lock: 64 at most.
	COMMAND  The command and its arguments, after --.

Exit codes:

` + exitTable(),
		Example: `  # a cron job on three machines, once a night
  redlatch run -n --min-hold 60 nightly-report -- ./report.sh
  # wait a minute for it, then give up with exit code 75
  redlatch run -w 60 deploy -- ./deploy.sh production
  # two things at once, or neither
  redlatch run stock payment -- ./settle.sh
  # any number of reports, and never while the shop is rebuilt
  redlatch run --shared shop -- ./report.sh
  redlatch run shop -- ./rebuild.sh
  # four downloads at a time, each on a port of its own
  redlatch run --permits 4 download -- sh -c './download --port $((9000 + REDLATCH_SLOT))'
  # as flock does it
  redlatch run -n -E 1 backup -c 'pg_dump shop | gzip > shop.gz'
  # three servers: a majority of them decides
  redlatch run --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 job -- ./job
`,
		Args: r.arguments,
	}
	flags := cmd.Flags()
	r.acquisition.addTo(flags)
	r.TTL = 10 * time.Second
	flags.Var(commandline.Duration(&r.TTL), "ttl", "How long the nodes keep the lock when nothing is heard of us; it is renewed while COMMAND runs. Defaults to 10s.")
	flags.Var(commandline.Duration(&r.MinHold), "min-hold", "Keep the lock at least this long, though COMMAND ended sooner: so that a job that two machines start at the same minute runs once, though their clocks differ. A signal ends it.")
	flags.Var(commandline.Duration(&r.MaxRun), "max-run", "End COMMAND when it has run this long: SIGTERM, and SIGKILL after --grace. Defaults to no limit.")
	flags.Var(commandline.Duration(&r.Grace), "grace", "How long COMMAND has between SIGTERM and SIGKILL, half the TTL at most. A lost lock is lost so much earlier. Defaults to a fifth of the TTL.")
	commandline.Bool(flags, &r.Shared, "shared", "", "Have the lock together with others who give --shared, and not while somebody has it without.")
	flags.Var(commandline.Optional(&r.Permits, commandline.Int), "permits", "Have one of `K` permits of NAME, 256 at most. All should give the same K; of several the largest counts.")
	commandline.Bool(flags, &r.OwnGroup, "own-group", "", "Give COMMAND a process group of its own, and the terminal while it runs, as timeout does. Otherwise it is in ours, as with flock.")
	flags.FuncP("command", "c", "Have the shell ($SHELL, or /bin/sh) run `STRING`, instead of a COMMAND after --.", func(text string) error {
		r.Shell = &text
		return nil
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.Flags().NArg() > 1 && !slices.Contains(os.Args, "--") { // it is COMMAND's
			return errNoDashes
		}
		return err
	})
	fromEnvironment(flags, "ttl", "min-hold", "max-run", "grace", "own-group")
	return cmd
}

// arguments takes the names, and COMMAND with the "--" before it.
func (r *runCmd) arguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("no NAME")
	}
	r.Name, r.Command = args[0], args[1:]
	if names := cmd.ArgsLenAtDash(); names > 0 {
		r.Also = further(args[:names])
		r.Command = slices.Concat([]string{"--"}, args[names:])
	}
	return nil
}

// terms are the times around a lost lock.
type terms struct {
	// grace is COMMAND's between SIGTERM and SIGKILL.
	grace time.Duration
	// margin is left between SIGKILL and the end of validity, for a machine
	// that is busy: on one with ten runnable processes a core, the guard was
	// seen to be 180 ms late. After that end the keys live on for the drift.
	margin time.Duration
}

// guard is how long before the end of validity the lock counts as lost.
func (t terms) guard() time.Duration { return t.grace + t.margin }

// killAt is when COMMAND is killed for a validity that ends at until.
func (t terms) killAt(until time.Time) time.Time { return until.Add(-t.margin) }

// continueBefore is when a stopped COMMAND has to be continued: later, the lock
// counts as lost.
func (t terms) continueBefore(until time.Time) time.Time { return until.Add(-t.guard()) }

// guardAt is when the guard process does it: a little later, so that it acts
// only when this one did not.
func (t terms) guardAt(until time.Time) time.Time { return until.Add(-t.margin * 3 / 4) }

func (r *runCmd) terms() terms {
	t := terms{grace: r.Grace, margin: max(r.TTL/10, min(r.TTL/6, 200*time.Millisecond))}
	if t.grace == 0 {
		t.grace = r.TTL / 5
	}
	return t
}

const form = "redlatch run NAME... -- COMMAND [ARG...], or redlatch run NAME -c STRING"

var errNoDashes = usage(form, "no \"--\" between NAME and COMMAND")

// check refuses flags that cannot work, before anything is sent.
func (r *runCmd) check() error {
	switch {
	case r.Shell != nil && len(r.Command) > 0:
		return usage("give one of them; -c takes one NAME, for several: redlatch run NAME NAME... -- sh -c STRING", "both -c and a COMMAND after NAME")
	case r.Shell != nil && *r.Shell == "":
		return usage(form, "-c has nothing to run")
	case r.Shell != nil:
	case len(r.Command) == 0:
		return usage(form, "no COMMAND")
	case r.Command[0] != "--":
		return errNoDashes
	case len(r.Command) == 1 || r.Command[1] == "":
		return usage(form, "no COMMAND after \"--\"")
	}
	switch {
	case r.MinHold < 0:
		return usage("leave it out for none", "--min-hold %v is negative", r.MinHold)
	case r.MaxRun < 0:
		return usage("leave it out for none", "--max-run %v is negative", r.MaxRun)
	case r.Grace < 0 || r.Grace > r.TTL/2:
		return usage("raise --ttl", "--grace %v is not between 0 and half of --ttl %v", r.Grace, r.TTL)
	}
	if err := r.checkNames(); err != nil {
		return err
	}
	switch several := len(r.Also) > 0; {
	case r.Shared && r.Permits != nil:
		return usage("give one of them: readers are not counted, and each permit has one holder", "both --shared and --permits")
	case r.Shared && several:
		return usage("run one inside the other, always in the same order", "--shared with several NAMEs")
	case r.Permits != nil && several:
		return usage("run one inside the other, always in the same order", "--permits with several NAMEs")
	case r.Permits != nil && (*r.Permits < 1 || *r.Permits > mostPermits):
		return usage(fmt.Sprintf("from 1 to %d", mostPermits), "--permits %d is out of range", *r.Permits)
	}
	if err := r.acquisition.check(r.TTL); err != nil {
		return err
	}
	return checkRenewed(r.TTL)
}

// mostPermits is how many the library has of a name.
const mostPermits = 256

// leastRenewed is the shortest TTL that is of use for a lock that is renewed. It
// leaves a third of it for the round of a renewal, and less is lost whenever the
// machine does something else for a moment.
const leastRenewed = 100 * time.Millisecond

// checkRenewed refuses a TTL that renewal does not keep up with.
func checkRenewed(ttl time.Duration) error {
	if ttl < leastRenewed {
		return usage(fmt.Sprintf("%v is the least, and a few seconds are usual", leastRenewed), "--ttl %v is too short: the lock would be lost before it is renewed; the least is %v", ttl, leastRenewed)
	}
	return nil
}

// argv is what is run: COMMAND, or the shell with what it is to run.
func (r *runCmd) argv() []string {
	if r.Shell != nil {
		return []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh"), "-c", *r.Shell}
	}
	return r.Command[1:]
}

// options are the terms on which the lock is asked for.
func (r *runCmd) options(out *printer) []redlatch.Option {
	options := []redlatch.Option{
		redlatch.WithTTL(r.TTL),
		redlatch.WithGuard(r.terms().guard()),
		redlatch.WithMaxHold(r.maxHold()),
		redlatch.WithWaitReport(r.waitReport(out)),
	}
	if len(r.Also) > 0 {
		options = append(options, redlatch.WithAlso(r.Also...))
	}
	if r.Shared {
		options = append(options, redlatch.WithShared())
	}
	if r.Permits != nil {
		options = append(options, redlatch.WithPermits(*r.Permits))
	}
	if r.Label != "" {
		options = append(options, redlatch.WithLabel(r.Label))
	}
	return options
}

// forever is longer than any COMMAND runs.
const forever = 10 * 365 * 24 * time.Hour

// maxHold bounds the renewal. The bound a program needs, against a goroutine
// that forgot its lock, is here the life of COMMAND: the lock of a backup must
// not end after an hour because nobody thought of it. --max-run bounds it.
func (r *runCmd) maxHold() time.Duration {
	if r.MaxRun == 0 {
		return forever
	}
	return r.MaxRun + r.MinHold + r.terms().grace + 2*r.TTL
}

// Run takes the lock, runs COMMAND and releases the lock. Its error is an
// *outcome.
func (r *runCmd) Run(out *printer) error {
	out.level = r.level()
	out, end := out.detached()
	defer end()
	if err := r.check(); err != nil {
		return err
	}
	argv := r.argv()
	cfg, ours, err := r.configure(r.TTL, out)
	if err != nil {
		return err
	}
	path, err := lookup(argv[0])
	if err != nil {
		if end, ok := errors.AsType[*outcome](err); ok && len(r.Also) > 0 {
			end.hints = append(end.hints, fmt.Sprintf("what is before -- are names of locks: %s", r.quoted()))
		}
		return err
	}

	sigs := catchSignals()
	// Before the lock, for no time of it to go by while they start: they end with
	// this process.
	child, err := newChild()
	if err != nil {
		return err
	}
	client, err := r.open(cfg, out)
	if err != nil {
		child.abandon()
		return err
	}
	// Close is not deferred: it releases the lock, and after a panic COMMAND
	// would still be running. The guard kills it then.
	result := r.locked(client, sigs, out, child, path, argv, ours)
	if result.abrupt {
		return result
	}
	child.abandon()
	if result.released {
		r.close(client, out)
	} else if err := client.Close(); err != nil {
		out.detail("closing: %v", err)
	}
	return result
}

// locked is what happens between open and close.
func (r *runCmd) locked(client *redlatch.Client, sigs signals, out *printer, child *child, path string, argv []string, ours []held) *outcome {
	lock, end := r.acquire(client, sigs, out, r.options(out))
	if end != nil {
		return end
	}
	since := time.Now()
	out.detail("holding %s, token %d, until %s at least", r.quoted(), lock.Token(), lock.Until().Format(time.TimeOnly))
	if sig := sigs.pending(); sig != nil {
		release(lock, out)
		return interrupted(sig, r.quoted())
	}
	if err := lock.Err(); err != nil { // stopped since it was granted
		release(lock, out)
		return &outcome{code: exitLost, err: err}
	}
	tty := openTerminal()
	defer tty.close()
	sigs.catchJobControl()
	end = child.start(path, argv, environment(os.Environ(), lock, ours), r.ownGroup(out), tty, r.terms().guardAt(lock.Until()), lock.Context().Done())
	if end != nil {
		release(lock, out)
		return end
	}
	end, lost := supervise(r, lock, child, sigs, out)
	if lost {
		release(lock, out)
		return end
	}
	if left := r.MinHold - time.Since(since); left > 0 {
		lost = r.keep(lock, left, sigs, out)
	} else {
		lost = release(lock, out)
	}
	if lost {
		return &outcome{code: exitLost, err: fmt.Errorf("%s was not held any more when COMMAND ended with exit code %d", r.quoted(), end.code)}
	}
	end.released = true // on a quorum at least
	return end
}

// ownGroup reports whether COMMAND is to lead a process group: also where its group
// is all that can be told from other processes, and where ours has no number,
// because it was made in another pid namespace.
func (r *runCmd) ownGroup(out *printer) bool {
	if err := canWalk(); err != nil && !r.OwnGroup {
		out.detail("COMMAND gets a process group of its own, and of what it starts only that is killed: %v", err)
		return true
	}
	return r.OwnGroup || syscall.Getpgrp() == 0
}

// keep holds the lock for what is left of --min-hold, releases it, and reports
// whether it was lost before COMMAND ended. What becomes of it later is no
// longer COMMAND's business: the nodes are asked once more at the start.
func (r *runCmd) keep(lock *redlatch.Lock, left time.Duration, sigs signals, out *printer) (lost bool) {
	if err := lock.Extend(context.Background(), r.TTL); errors.Is(err, redlatch.ErrLost) {
		release(lock, out)
		return true
	}
	out.detail("COMMAND ended; %s is held for %v more", r.quoted(), short(left))
	over := time.After(left)
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		case <-lock.Context().Done():
			waiting = false
		case sig := <-sigs:
			waiting = !stops(sig)
		}
	}
	if release(lock, out) {
		out.warn("%s was lost before --min-hold was over", r.quoted())
	}
	return false
}

// release gives the lock back and reports whether it turned out to be lost.
func release(lock *redlatch.Lock, out *printer) (lost bool) {
	err := lock.Unlock(context.Background())
	switch {
	case errors.Is(err, redlatch.ErrLost):
		return true
	case err != nil:
		out.warn("could not release %s everywhere, the rest expires by itself: %v", quoted(lock.Names()), err)
	}
	return false
}
