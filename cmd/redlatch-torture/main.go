// Redlatch-torture shows what the locks do when machines fail. It starts the servers and the
// processes for that itself.
//
// `redlatch-torture demo` shows ten seconds of it; `redlatch-torture run` runs for longer and
// judges the history of the locks.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/printable"
)

func main() { os.Exit(execute(os.Args[1:])) }

// command is one of redlatch-torture's commands. If Run returns nil, the exit code is 0; an
// *outcome chooses another.
type command interface {
	// line returns the command line, whose flags set the fields of the command.
	line() *cobra.Command
	Run() error
}

// newProgram returns the program. Running it sets chosen to the command that its arguments name.
func newProgram(chosen *command) *cobra.Command {
	program := &cobra.Command{Use: "redlatch-torture <command>", Short: "Tests distributed locks while servers and workers fail."}
	for _, c := range slices.Concat(demoCommands, tortureCommands) {
		line := c.line()
		line.Run = func(*cobra.Command, []string) { *chosen = c }
		program.AddCommand(line)
	}
	commandline.Complete(program)
	return program
}

// execute parses args, runs the command they name and returns the exit code.
func execute(args []string) int {
	err := parseAndRun(args)
	end, ok := errors.AsType[*outcome](err)
	switch {
	case err == nil:
		return 0
	case !ok:
		end = &outcome{code: exitSystem, err: err}
	}
	if end.err != nil {
		say(end.err.Error())
	}
	if end.hint != "" {
		say("hint: " + end.hint)
	}
	return end.code
}

// parseAndRun parses args and runs the command they name. A wrong command line is an *outcome.
func parseAndRun(args []string) error {
	var chosen command
	selected, err := commandline.Parse(newProgram(&chosen), args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return commandline.WriteHelp(os.Stdout, selected)
	case errors.Is(err, commandline.ErrVersion):
		_, err := fmt.Println(commandline.VersionLine("redlatch-torture"))
		return err
	case err != nil:
		return usage("see "+selected.CommandPath()+" --help", "%s", err)
	}
	return chosen.Run()
}

// say writes a message to stderr; stdout is for the report.
func say(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(os.Stderr, "redlatch-torture: %s\n", printable.Text(strings.TrimRight(line, "\n")))
	}
}
