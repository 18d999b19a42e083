package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// command is one of redlatch's commands. Each has a file of its own. If Run returns nil, the exit
// code is 0; an *outcome chooses another.
type command interface {
	// line returns its command line, which sets the fields of the command.
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
	// A command that has caught signals would otherwise not even end on one while stderr blocks.
	out, flushed := out.detached()
	out.fail(end)
	flushed()
	if end.signal != 0 {
		dieOf(end.signal)
	}
	return end.code
}

// newProgram returns the program, which sets chosen to the command that the command line names.
// The help, the completion scripts and the man page are made from it, too.
func newProgram(chosen *command) *cobra.Command {
	program := &cobra.Command{Use: "redlatch <command>", Short: "Distributed locks on Redis and Valkey.", PersistentPreRunE: readEnvironment}
	deployment := &cobra.Command{Use: "deployment <command>", Short: "Show or change the settings that all clients of the deployment must agree on."}
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
	wants := false
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return wants
		case name == "--json" && !given:
			wants = true
		case name == "--json":
			if is, err := commandline.ParseBool(value); err == nil {
				wants = is
			}
		}
	}
	return wants
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
		return named(chosen.Run(out), selected)
	}
	if err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}
