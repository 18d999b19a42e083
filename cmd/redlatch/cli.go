package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

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
	Admit      admitCmd      `cmd:"" help:"Vouch for a freshly started node, so that it votes at once."`
	Deployment deploymentCmd `cmd:"" help:"Show or change what all clients of the deployment must agree on."`
	Doctor     doctorCmd     `cmd:"" help:"Look at the nodes and say what is wrong with them."`
	demoCommands
	tortureCommands
	HelpOf     helpCmd       `cmd:"" name:"help" help:"Show the help of a command."`
	Completion completionCmd `cmd:"" help:"Print a script that completes command lines in a shell."`
	Man        manCmd        `cmd:"" help:"Print the manual page."`
	Version    versionCmd    `cmd:"" help:"Show the version."`
	Guard      guardCmd      `cmd:"" name:"guard-process" hidden:""`
	Parent     parentCmd     `cmd:"" name:"parent-process" hidden:""`

	ShowVersion versionFlag `name:"version" help:"Show the version."`
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

// newParser returns the parser, which is also the source of the help, the completion and
// the man page.
func newParser() (*kong.Kong, error) {
	return kong.New(new(cli),
		kong.Name("redlatch"),
		kong.Description("Distributed locks on Redis and Valkey."),
		kong.Writers(os.Stdout, os.Stderr),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}),
		kong.Help(showHelp),
		kong.KindMapper(reflect.String, kong.MapperFunc(verbatim)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
	)
}

// forgetEmpty has variables that are empty count as unset, as with other programs. Only
// REDLATCH_NODES is not: without nodes this machine's would be used.
func forgetEmpty(command *kong.Node) {
	for _, flag := range command.Flags {
		flag.Tag.Envs = slices.DeleteFunc(flag.Tag.Envs, func(name string) bool {
			value, set := os.LookupEnv(name)
			return set && value == "" && name != "REDLATCH_NODES"
		})
	}
	for _, child := range command.Children {
		forgetEmpty(child)
	}
}

// wantsJSON reports whether a command's --json is among args.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--json":
			return args[0] != "torture" // which writes it to a file
		case "--":
			return false
		}
	}
	return false
}

func parseAndRun(args []string, out *printer) error {
	parser, err := newParser()
	if err != nil {
		return err
	}
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	forgetEmpty(parser.Model.Node)
	ctx, err := parser.Parse(args)
	if err != nil {
		hint := "see redlatch --help"
		if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
			if selected := parse.Context.Selected(); selected != nil {
				hint = "see " + selected.FullPath() + " --help"
			}
		}
		return &outcome{code: exitUsage, err: withoutURLs(err, args), hints: []string{hint}}
	}
	return ctx.Run(out)
}

// withoutURLs is what the parser says of args, of which it repeats what is in a
// wrong place: up to a URL, or to what may be part of one, and of that what can be
// shown.
func withoutURLs(err error, args []string) error {
	text := err.Error()
	for _, arg := range args {
		for _, part := range append(strings.Split(arg, ","), arg) {
			if _, value, has := strings.Cut(part, "="); has && strings.HasPrefix(part, "-") {
				part = value
			}
			if !strings.Contains(part, "@") && !strings.Contains(part, ":/") {
				continue
			}
			// The parser may quote the rest.
			start, _, _ := strings.Cut(strconv.QuoteToASCII(part)[1:], `\`)
			if before, _, found := strings.Cut(text, strings.TrimSuffix(start, `"`)); found {
				text = before + "…" // a piece of a list may be part of a password
				if !strings.Contains(arg, ",") {
					text = before + redisconn.Redact(part)
				}
			}
		}
	}
	return errors.New(text)
}

// verbatim takes an argument as it is. Kong itself takes it through JSON, which
// replaces what is no UTF-8: COMMAND would get another file's name.
func verbatim(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err == nil {
		target.SetString(token.String())
	}
	return err
}

// showHelp prints a command's help, under the usage line of its own that it may
// have.
func showHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if selected := ctx.Selected(); selected != nil {
		if cmd, ok := selected.Target.Addr().Interface().(interface{ Usage() string }); ok {
			fmt.Fprintf(ctx.Stdout, "Usage: %s\n", cmd.Usage())
			options.NoAppSummary = true
		}
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if selected := ctx.Selected(); selected != nil {
		if lines := examplesOf(selected); len(lines) > 0 {
			fmt.Fprintf(ctx.Stdout, "\nExamples:\n")
			for _, line := range lines {
				fmt.Fprintf(ctx.Stdout, "  # %s\n  %s\n", line.what, line.command)
			}
		}
	}
	return nil
}
