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
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
)

// runCmd is `redlatch run`.
type runCmd struct {
	acquisition

	// TTL is GivenTTL, or its default.
	TTL      time.Duration
	GivenTTL *time.Duration

	MinHold time.Duration
	MaxRun  time.Duration
	Grace   *time.Duration

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
		Long: `redlatch sets REDLATCH_NAME, REDLATCH_TOKEN (the fencing token) and REDLATCH_DEADLINE in the environment of COMMAND. REDLATCH_DEADLINE is the time, such as 2026-11-23T10:00:09.5Z, until which the lock was certain to be held when COMMAND started; redlatch renews the lock after that. COMMAND has the stdin, stdout and stderr of redlatch.

Several NAMEs form one lock: redlatch holds all of them or none. The lock has one token, which is larger than every earlier token of each name, and it is lost as soon as one name is lost. Runs with several names do not deadlock, whatever the order of the names. REDLATCH_NAME has the first name, and REDLATCH_NAMES has all of them, one per line. In a Redis Cluster the names must be in the same hash slot, as {shop}/a and {shop}/b are.

Runs with --shared are readers: any number of them hold the lock together. A run without --shared is a writer, which holds the lock alone. A writer that waits goes before readers that come later.

With --permits K, up to K runs hold a permit of NAME at the same time. REDLATCH_SLOT tells COMMAND which permit it has, from 0 to K-1; no two runs have the same one. Permits and the lock of the same name do not exclude each other.

In ZooKeeper and etcd there are no readers, no permits, and no locks of several names.

COMMAND stays in the process group of redlatch, as with flock: Ctrl-C and Ctrl-Z reach both. If INT, TERM, HUP, QUIT, USR1, USR2 or WINCH is sent to redlatch alone, redlatch passes it on to COMMAND and to what COMMAND started in that group. HUP, INT, TSTP, TTIN and TTOU stay ignored if they were ignored when redlatch started, and QUIT is ignored if INT is; COMMAND starts with the default action of all others. INT, TERM, HUP and QUIT end the wait for the lock. With --own-group, COMMAND leads a process group of its own. If COMMAND ends by itself, processes that it leaves running go on without the lock.

When the lock is lost, COMMAND and what it started in its group get SIGTERM at once. All that COMMAND started, in whatever group or session, gets SIGKILL before another client can get the lock. Two guard processes send it if redlatch itself was killed or is stopped for too long. The lock of a job that is stopped with Ctrl-Z is not renewed: redlatch says until when the job can be continued, and after that it is killed.

redlatch cannot kill processes that it may not send signals to, such as those that users other than root start with sudo. It reports them at once, with their pids, and still exits with 76. Nor can it kill what a service such as docker or systemd runs at COMMAND's request. Without /proc, COMMAND gets a process group of its own, and redlatch kills only that group.

Arguments:

	NAME     The name of the lock. One lock can have up to 64 names.
	COMMAND  The command and its arguments, after --.

Exit codes:

` + exitTable(),
		Example: `  # a cron job on three machines, once a night
  redlatch run -n --min-hold 60 nightly-report -- ./report.sh
  # wait a minute for the lock, then give up with exit code 75
  redlatch run -w 60 deploy -- ./deploy.sh production
  # lock two names, both or neither
  redlatch run stock payment -- ./settle.sh
  # any number of reports at a time, but none while the shop is rebuilt
  redlatch run --shared shop -- ./report.sh
  redlatch run shop -- ./rebuild.sh
  # four downloads at a time, each on a port of its own
  redlatch run --permits 4 download -- sh -c './download --port $((9000 + REDLATCH_SLOT))'
  # with the options of flock
  redlatch run -n -E 1 backup -c 'pg_dump shop | gzip > shop.gz'
  # three servers: a majority of them decides
  redlatch run --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 job -- ./job
`,
		Args: r.arguments,
	}
	flags := cmd.Flags()
	r.acquisition.addTo(flags)
	flags.Var(commandline.Optional(&r.GivenTTL, commandline.Duration), "ttl", "How long the nodes keep the lock without a renewal; redlatch renews it while COMMAND runs. Defaults to 10s, or to --max-ttl if that is less.")
	flags.Var(commandline.Duration(&r.MinHold), "min-hold", "Hold the lock for at least this long, even if COMMAND ends sooner. So a job that two machines start in the same minute runs once, though their clocks differ. INT, TERM, HUP or QUIT ends the hold, even if it comes while COMMAND runs. Defaults to 0.")
	flags.Var(commandline.Duration(&r.MaxRun), "max-run", "End COMMAND when it has run this long, with SIGTERM, and with SIGKILL after --grace. Defaults to no limit.")
	flags.Var(commandline.Optional(&r.Grace, commandline.Duration), "grace", "How long COMMAND has between SIGTERM and SIGKILL, at most half the TTL; 0 means SIGKILL at once. The lock counts as lost that much earlier. Defaults to a fifth of the TTL.")
	commandline.Bool(flags, &r.Shared, "shared", "", "Hold the lock together with other runs that give --shared, but not with a run that does not.")
	flags.Var(commandline.Optional(&r.Permits, commandline.Int), "permits", "Hold one of `K` permits of NAME, at most 256. All clients should give the same K; if they differ, the largest counts.")
	commandline.Bool(flags, &r.OwnGroup, "own-group", "", "Give COMMAND a process group of its own, and the terminal while it runs, as timeout does. Otherwise it stays in the group of redlatch, as with flock.")
	flags.FuncP("command", "c", "Run `STRING` in the shell ($SHELL, or /bin/sh), instead of a COMMAND after --.", func(text string) error {
		r.Shell = &text
		return nil
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.Flags().NArg() > 1 && !slices.Contains(os.Args, "--") { // the flag is COMMAND's
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
		return errors.New("missing NAME")
	}
	if cmd.ArgsLenAtDash() == 0 {
		return usage(form, "missing NAME before \"--\"")
	}
	r.Name, r.Command = args[0], args[1:]
	if names := cmd.ArgsLenAtDash(); names > 0 {
		r.Also = further(args[:names])
		r.Command = slices.Concat([]string{"--"}, args[names:])
	}
	return nil
}

// terms has the times that matter when a lock is lost.
type terms struct {
	// grace is what COMMAND has between SIGTERM and SIGKILL.
	grace time.Duration
	// margin is the time from SIGKILL to the end of validity, for a machine
	// that is busy: on one with ten runnable processes per core, the guard was
	// once 180 ms late. The keys outlive the validity by the drift.
	margin time.Duration
}

// guard is the time before the end of validity at which the lock counts as lost.
func (t terms) guard() time.Duration { return t.grace + t.margin }

// killAt is when COMMAND is killed if the validity ends at until.
func (t terms) killAt(until time.Time) time.Time { return until.Add(-t.margin) }

// continueBefore is the time before which a stopped COMMAND has to be continued:
// from then on, the lock counts as lost.
func (t terms) continueBefore(until time.Time) time.Time { return until.Add(-t.guard()) }

// guardAt is when the guard process kills COMMAND under lock: a little later, so that it acts
// only if this process did not.
func (t terms) guardAt(lock *redlatch.Lock) clock.Instant {
	return hook.LeaseOf(lock).Deadline().Add(-t.margin * 3 / 4)
}

func (r *runCmd) terms() terms {
	t := terms{grace: r.TTL / 5, margin: max(r.TTL/10, min(r.TTL/6, 200*time.Millisecond))}
	if r.Grace != nil {
		t.grace = *r.Grace
	}
	return t
}

const form = "redlatch run NAME... -- COMMAND [ARG...], or redlatch run NAME -c STRING"

var errNoDashes = usage(form, "missing \"--\" between NAME and COMMAND")

// check refuses flags that cannot work, before anything is sent.
func (r *runCmd) check() error {
	switch {
	case r.Shell != nil && len(r.Command) > 0:
		return usage("give one of them; -c takes one NAME: for several names, redlatch run NAME NAME... -- sh -c STRING", "both -c and a COMMAND after NAME")
	case r.Shell != nil && *r.Shell == "":
		return usage(form, "the STRING of -c is empty")
	case r.Shell != nil:
	case len(r.Command) == 0:
		return usage(form, "missing COMMAND")
	case r.Command[0] != "--":
		return errNoDashes
	case len(r.Command) == 1 || r.Command[1] == "":
		return usage(form, "missing COMMAND after \"--\"")
	}
	switch {
	case r.MinHold < 0:
		return usage("leave --min-hold out for none", "--min-hold %v is negative", r.MinHold)
	case r.MaxRun < 0:
		return usage("leave --max-run out for no limit", "--max-run %v is negative", r.MaxRun)
	case r.Grace != nil && (*r.Grace < 0 || *r.Grace > r.TTL/2):
		return usage("lower --grace, or raise --ttl", "--grace %v is not between 0 and half of --ttl %v", *r.Grace, r.TTL)
	}
	if err := r.checkNames(); err != nil {
		return err
	}
	switch several := len(r.Also) > 0; {
	case r.Shared && r.Permits != nil:
		return usage("give one of them: readers are not counted, and each permit has one holder", "both --shared and --permits")
	case r.Shared && several:
		return usage("give each name a redlatch run of its own, one inside the other, always in the same order", "--shared with several NAMEs")
	case r.Permits != nil && several:
		return usage("give each name a redlatch run of its own, one inside the other, always in the same order", "--permits with several NAMEs")
	case r.Permits != nil && (*r.Permits < 1 || *r.Permits > mostPermits):
		return usage(fmt.Sprintf("give a number from 1 to %d", mostPermits), "--permits %d is out of range", *r.Permits)
	}
	return r.checkRenewed(r.TTL)
}

// mostPermits is the largest number of permits that a name can have in the library.
const mostPermits = 256

// leastRenewed is the shortest useful TTL of a lock that is renewed. A third of it is
// left for the round of a renewal. A lock with a shorter TTL is lost whenever the
// machine does something else for a moment.
const leastRenewed = 100 * time.Millisecond

// checkRenewed is check for a lock that is renewed: its TTL need not be as long as it is held.
func (r *acquisition) checkRenewed(ttl time.Duration) error {
	switch {
	case ttl > r.MaxTTL:
		return usage("leave --ttl out: the lock is renewed for as long as it is held", "--ttl %v is more than --max-ttl %v", ttl, r.MaxTTL)
	case r.MaxTTL < leastRenewed: // it is the TTL if no other is given
		return tooShort("--max-ttl", r.MaxTTL)
	case ttl < leastRenewed:
		return tooShort("--ttl", ttl)
	}
	return r.check(ttl)
}

func tooShort(flag string, ttl time.Duration) error {
	return usage(fmt.Sprintf("give %v or more; a few seconds are usual", leastRenewed), "%s %v is too short: the lock would be lost before it is renewed; the least is %v", flag, ttl, leastRenewed)
}

// argv returns COMMAND, or the shell with the STRING that it is to run.
func (r *runCmd) argv() []string {
	if r.Shell != nil {
		return []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh"), "-c", *r.Shell}
	}
	return r.Command[1:]
}

// options returns the library's options for the lock.
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

// maxHold limits how long the lock is renewed. A program needs such a limit against
// a goroutine that forgot its lock. Here the life of COMMAND is the limit: the lock of
// a backup must not end after an hour because nobody thought of a setting. --max-run
// limits the life of COMMAND.
func (r *runCmd) maxHold() time.Duration {
	if r.MaxRun == 0 {
		return forever
	}
	return min(r.MaxRun, forever) + min(r.MinHold, forever) + r.terms().grace + 2*r.TTL
}

// Run takes the lock, runs COMMAND and releases the lock. Its error is an
// *outcome.
func (r *runCmd) Run(out *printer) error {
	out.level = r.level()
	out, end := out.detached()
	defer end()
	if r.TTL = min(keptTTL, r.MaxTTL); r.GivenTTL != nil {
		r.TTL = *r.GivenTTL
	}
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
			end.hints = append(end.hints, fmt.Sprintf("all words before -- are names of locks: %s", r.quoted()))
		}
		return err
	}

	sigs := catchSignals()
	// The guards start before the lock is taken, so that they use up none of its time.
	// They end with this process.
	child, err := newChild()
	if err != nil {
		return err
	}
	client, err := r.open(cfg, sigs, out)
	if err != nil {
		child.abandon()
		return err
	}
	// Close is not deferred: it releases the lock, and after a panic COMMAND
	// would still be running. In that case the guard kills COMMAND.
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

// locked takes the lock, runs COMMAND and releases the lock with a client that is open.
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
	if err := lock.Err(); err != nil { // this process was stopped after the lock was granted
		release(lock, out)
		return &outcome{code: exitLost, err: err}
	}
	tty := openTerminal()
	defer tty.close()
	sigs.catchJobControl()
	deadline := func() clock.Instant { return r.terms().guardAt(lock) }
	end = child.start(path, argv, environment(os.Environ(), lock, ours), r.ownGroup(out), tty, deadline, lock.Context().Done())
	if end != nil {
		release(lock, out)
		// The Go runtime unblocks these signals in the guards before they are caught there.
		if sig := sigs.pending(); sig != nil && end.code == exitSystem {
			return interrupted(sig, r.quoted())
		}
		return end
	}
	end, lost := supervise(r, lock, child, sigs, out)
	if lost {
		release(lock, out)
		return end
	}
	if left := r.MinHold - time.Since(since); left > 0 && !end.interrupted {
		lost = r.keep(lock, left, sigs, out)
	} else {
		lost = release(lock, out)
	}
	if lost {
		return &outcome{code: exitLost, err: fmt.Errorf("%s: the lock was lost before COMMAND ended with exit code %d", r.quoted(), end.code)}
	}
	end.released = true // at least on a quorum
	return end
}

// ownGroup reports whether COMMAND is to lead a process group. That is also so if its
// group is all that tells COMMAND's processes from others, and if the group of redlatch
// has no number here, because it was made in another pid namespace.
func (r *runCmd) ownGroup(out *printer) bool {
	if err := canWalk(); err != nil && !r.OwnGroup {
		out.detail("COMMAND gets a process group of its own, and redlatch can kill only that group: %v", err)
		return true
	}
	return r.OwnGroup || syscall.Getpgrp() == 0
}

// keep holds the lock for what is left of --min-hold, releases it, and reports
// whether it was lost before COMMAND ended, for which it asks the nodes once more. A
// later loss does not concern COMMAND any more.
func (r *runCmd) keep(lock *redlatch.Lock, left time.Duration, sigs signals, out *printer) (lost bool) {
	if err := lock.Extend(context.Background(), r.TTL); errors.Is(err, redlatch.ErrLost) {
		release(lock, out)
		return true
	}
	out.detail("COMMAND ended; redlatch holds %s for another %v", r.quoted(), short(left))
	over := time.After(left)
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		case <-lock.Context().Done():
			waiting = false
		case sig := <-sigs:
			waiting = !stops(sig)
			if sig == syscall.SIGTSTP {
				r.stop(lock, out)
			}
		}
	}
	if release(lock, out) {
		out.warn("%s was lost before --min-hold was over", r.quoted())
	}
	return false
}

// release releases the lock and reports whether it was lost before.
func release(lock *redlatch.Lock, out *printer) (lost bool) {
	err := lock.Unlock(context.Background())
	switch {
	case errors.Is(err, redlatch.ErrLost):
		return true
	case err != nil:
		out.warn("could not release %s on all nodes, on the others it expires by itself: %v", quoted(lock.Names()), err)
	}
	return false
}
