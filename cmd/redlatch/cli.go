package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// command is what redlatch can be told to do, in a file for each. A nil error is exit code 0; an
// *outcome chooses another.
type command interface {
	// line is its command line, which sets its fields.
	line() *cobra.Command
	Run(out *printer) error
}

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

// newProgram returns the program, which sets chosen to the command that is named. It is also the
// source of the help, the completion and the man page.
func newProgram(chosen *command) *cobra.Command {
	program := &cobra.Command{Use: "redlatch <command>", Short: "Distributed locks on Redis and Valkey.", PersistentPreRunE: readEnvironment}
	deployment := &cobra.Command{Use: "deployment <command>", Short: "Show or change what all clients of the deployment must agree on."}
	add := func(to *cobra.Command, commands ...command) {
		for _, c := range commands {
			line := c.line()
			line.Run = func(*cobra.Command, []string) { *chosen = c }
			to.AddCommand(line)
		}
	}
	add(program, new(runCmd), new(lockCmd), new(extendCmd), new(unlockCmd), new(showCmd), new(listCmd), new(watchCmd), new(admitCmd))
	program.AddCommand(deployment)
	add(deployment, new(deploymentSetCmd), new(deploymentShowCmd))
	add(program, new(doctorCmd), new(completionCmd), new(manCmd), new(versionCmd), new(guardCmd), new(parentCmd))
	commandline.Complete(program)
	return program
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
	var chosen command
	selected, err := commandline.Parse(newProgram(&chosen), args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		err = commandline.WriteHelp(os.Stdout, selected)
	case errors.Is(err, commandline.ErrVersion):
		_, err = fmt.Fprintln(os.Stdout, commandline.VersionLine("redlatch"))
	case err != nil:
		if end, ok := errors.AsType[*outcome](err); ok {
			return end
		}
		return usage("see "+selected.CommandPath()+" --help", "%w", err)
	default:
		if nodes, ok := chosen.(interface{ assumeNodes() }); ok {
			nodes.assumeNodes()
		}
		return chosen.Run(out)
	}
	if err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}
