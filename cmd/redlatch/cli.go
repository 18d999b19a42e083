package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/redlatch/redlatch/internal/commandline"
	"github.com/redlatch/redlatch/internal/redisconn"
)

// cli is the command line: one field a command, and a file for each.
type cli struct {
	Run        runCmd        `cmd:"" help:"Run a command while holding a lock."`
	Lock       lockCmd       `cmd:"" help:"Take a lock and print the handle to extend and unlock it by."`
	Extend     extendCmd     `cmd:"" help:"Prolong a lock by its handle."`
	Unlock     unlockCmd     `cmd:"" help:"Release a lock by its handle."`
	Show       showCmd       `cmd:"" help:"Say who holds a lock."`
	List       listCmd       `cmd:"" help:"List the locks there are."`
	Admit      admitCmd      `cmd:"" help:"Vouch for a node that was just started, so that it votes at once."`
	Deployment deploymentCmd `cmd:"" help:"Show or change what all clients of the deployment must agree on."`
	Doctor     doctorCmd     `cmd:"" help:"Look at the nodes and say what is wrong with them."`
	HelpOf     helpCmd       `cmd:"" name:"help" help:"Show the help of a command."`
	Completion completionCmd `cmd:"" help:"Print a script that completes command lines in a shell."`
	Man        manCmd        `cmd:"" help:"Print the manual page."`
	Version    versionCmd    `cmd:"" help:"Show the version."`
	Guard      guardCmd      `cmd:"" name:"guard-process" hidden:""`
	Parent     parentCmd     `cmd:"" name:"parent-process" hidden:""`
}

// command is what every field of cli does. A nil error is exit code 0; an
// *outcome chooses another.
type command interface {
	Run(out *printer) error
}

var _ = []command{(*runCmd)(nil), (*lockCmd)(nil), (*extendCmd)(nil), (*unlockCmd)(nil), (*showCmd)(nil), (*listCmd)(nil), (*admitCmd)(nil), (*deploymentSetCmd)(nil), (*deploymentShowCmd)(nil), (*doctorCmd)(nil), (*helpCmd)(nil), (*completionCmd)(nil), (*manCmd)(nil), (*versionCmd)(nil), (*guardCmd)(nil), (*parentCmd)(nil)}

// execute parses args, runs the command they name and returns the exit code.
func execute(args []string) int {
	out := &printer{level: normal, asJSON: wantsJSON(args), out: os.Stderr}
	err := parseAndRun(args, out)
	if err == nil {
		return 0
	}
	end, ok := errors.AsType[*outcome](err)
	if !ok {
		end = &outcome{code: exitInternal, err: err}
	}
	out.fail(end)
	if end.signal != 0 {
		dieOf(end.signal)
	}
	return end.code
}

// newProgram returns the program, which is also the source of the help, the completion and
// the man page.
func newProgram() *commandline.Command {
	return commandline.New("redlatch", "Distributed locks on Redis and Valkey.", new(cli), examples)
}

// wantsJSON reports whether a command's --json is among args.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--json":
			return true
		case "--":
			return false
		}
	}
	return false
}

func parseAndRun(args []string, out *printer) error {
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	selected, err := newProgram().Parse(args)
	switch {
	case errors.Is(err, commandline.ErrHelp):
		err = selected.WriteHelp(os.Stdout)
	case errors.Is(err, commandline.ErrVersion):
		_, err = fmt.Fprintln(os.Stdout, version())
	case err != nil:
		return usage("see "+selected.FullPath()+" --help", "%w", commandline.Redacted(err, args, redisconn.Redact))
	default:
		if nodes, ok := selected.Target.(interface{ assumeNodes() }); ok {
			nodes.assumeNodes()
		}
		return selected.Target.(command).Run(out)
	}
	if err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}
