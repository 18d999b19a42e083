// Redlatch-torture shows what the locks do when machines fail, on servers and processes that
// it starts itself.
//
// `redlatch-torture demo` is ten seconds to look at, `redlatch-torture run` a run that is
// judged.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redlatch/redlatch/internal/commandline"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/redisconn"
)

func main() { os.Exit(execute(os.Args[1:])) }

// cli is the command line.
type cli struct {
	demoCommands
	tortureCommands
}

// command is what every field of cli does. A nil error is exit code 0; an *outcome chooses
// another.
type command interface{ Run() error }

var examples = map[string][]commandline.Example{
	"demo": {{What: "what happens when servers die", Line: "redlatch-torture demo"}},
	"run":  {{What: "an hour of faults, with a page to look at", Line: "redlatch-torture run --for 1h --report ./report"}},
}

func newProgram() *commandline.Command {
	return commandline.New("redlatch-torture", "Distributed locks on Redis and Valkey, while machines fail.", new(cli), examples)
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

func parseAndRun(args []string) error {
	selected, err := newProgram().Parse(args)
	switch {
	case errors.Is(err, commandline.ErrHelp):
		return selected.WriteHelp(os.Stdout)
	case errors.Is(err, commandline.ErrVersion):
		_, err := fmt.Println(version())
		return err
	case err != nil:
		return usage("see "+selected.FullPath()+" --help", "%s", commandline.Redacted(err, args, redisconn.Redact))
	}
	return selected.Target.(command).Run()
}

// say writes to stderr what nobody asked for; stdout is the report's.
func say(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(os.Stderr, "redlatch-torture: %s\n", printable.Text(strings.TrimRight(line, "\n")))
	}
}
