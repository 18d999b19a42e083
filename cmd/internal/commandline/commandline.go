// Package commandline has what redlatch's two programs add to cobra: the wording of errors and the
// help texts, neither of which shows a secret. It uses none of cobra's templates: text/template
// calls methods by name, so the linker would have to keep all methods of rueidis.
package commandline

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/internal/redisconn"
)

// ErrVersion is the error for a command line with --version. For one with --help, the error is
// pflag.ErrHelp.
var ErrVersion = errors.New("version requested")

// Complete adds to program what all programs have in common: --version, --help and the help
// command. Its caller has added all other commands before.
func Complete(program *cobra.Command) {
	cobra.EnableCommandSorting = false
	program.SilenceErrors, program.SilenceUsage = true, true
	program.TraverseChildren = true
	program.CompletionOptions.DisableDefaultCmd = true
	program.PersistentFlags().BoolFunc("version", "Show the version.", func(string) error { return ErrVersion })
	help := &cobra.Command{Use: "help [<command> ...]", Short: "Show the help of a command.", Run: func(*cobra.Command, []string) {}}
	help.Example = fmt.Sprintf("  # all about %[1]s run\n  %[1]s help run\n", program.Name())
	program.SetHelpCommand(help)
	// The last one replaces cobra's hidden command of the same name, which prints what the user
	// typed, even a secret.
	program.AddCommand(help, &cobra.Command{Use: cobra.ShellCompRequestCmd, Aliases: []string{cobra.ShellCompNoDescRequestCmd}, Hidden: true, DisableFlagParsing: true, RunE: func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("unknown command %s", cmd.CalledAs())
	}})
	for _, cmd := range All(program) {
		cmd.Flags().SortFlags = false
		cmd.InitDefaultHelpFlag()
		cmd.Flags().Lookup("help").Usage = "Show the help of the command."
		cmd.Flags().VisitAll(func(f *pflag.Flag) { f.DefValue = "" }) // the flag's help states the default
		if cmd.HasSubCommands() {
			cmd.SuggestionsMinimumDistance = 2
			cmd.Args = noCommand
			cmd.RunE = noCommand
		}
	}
}

// Parse runs the command of program that args name, and returns that command. Its errors are
// worded like all others, and show no secret.
func Parse(program *cobra.Command, args []string) (*cobra.Command, error) {
	ofHelp := len(args) > 0 && args[0] == "help"
	if ofHelp {
		args = append(slices.Clone(args[1:]), "--help")
	}
	helps := false
	program.SetHelpFunc(func(*cobra.Command, []string) { helps = true })
	program.SetArgs(args)
	cmd, err := program.ExecuteC()
	for c := cmd; c != nil; c = c.Parent() {
		helps = helps || c.Flags().Changed("help") // --help may come before the command's name
	}
	switch {
	case helps && cmd.HasSubCommands() && cmd.Flags().NArg() > 0:
		return cmd, noCommand(cmd, cmd.Flags().Args())
	case helps && ofHelp && cmd.Flags().NArg() > 0:
		return cmd, fmt.Errorf("unexpected argument %s", Shown(cmd.Flags().Arg(0)))
	case helps:
		return cmd, pflag.ErrHelp
	}
	return cmd, inWords(cmd, err)
}

// All returns cmd and all commands below it, in their order.
func All(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, below := range cmd.Commands() {
		all = append(all, All(below)...)
	}
	return all
}

// Visible returns the direct subcommands of cmd that its help shows.
func Visible(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return c.Hidden })
}

// noCommand returns the error for a command line that should have named a subcommand of cmd.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %s%s", Shown(args[0]), meant(cmd, args[0], ""))
	}
	var names []string
	for _, below := range Visible(cmd) {
		names = append(names, below.Name())
	}
	return fmt.Errorf("no command: give %s", either(names))
}

// arguments matches the words of a command's usage line that stand for arguments.
var arguments = regexp.MustCompile(`<([a-z]+)>(\]?)`)

// Placeholders returns the names of the command's arguments.
func Placeholders(cmd *cobra.Command) []string {
	var names []string
	for _, match := range arguments.FindAllStringSubmatch(cmd.Use, -1) {
		names = append(names, match[1])
	}
	return names
}

// Arguments stores the arguments of a command in to, in the order of the command's usage line.
func Arguments(to ...*string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(to) {
			return fmt.Errorf("unexpected argument %s", Shown(args[len(to)]))
		}
		for i, match := range arguments.FindAllStringSubmatch(cmd.Use, -1) {
			switch {
			case i < len(args):
				*to[i] = args[i]
			case match[2] == "":
				return fmt.Errorf("missing <%s>", match[1])
			}
		}
		if len(cmd.ValidArgs) > 0 && !slices.Contains(cmd.ValidArgs, args[0]) {
			return fmt.Errorf("<%s> is %q: it must be %s", Placeholders(cmd)[0], Shown(args[0]), either(cmd.ValidArgs))
		}
		return nil
	}
}

// inWords words an error of pflag like all others. It returns any other error as it is.
func inWords(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s: %w", e.GetFlag().Name, e.Unwrap())
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		placeholder, _ := pflag.UnquoteUsage(e.GetFlag())
		return fmt.Errorf("--%s needs a value: --%s %s", e.GetFlag().Name, e.GetFlag().Name, placeholder)
	}
	if e, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("%s is not a flag", Shown(e.GetSpecifiedFlag()))
	}
	e, ok := errors.AsType[*pflag.NotExistError](err)
	switch {
	case !ok:
		return err
	case e.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag -%s%s", e.GetSpecifiedName(), below(cmd, e.GetSpecifiedName(), "-", (*pflag.FlagSet).ShorthandLookup))
	case strings.Trim(e.GetSpecifiedName(), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "":
		return errors.New("unknown flag --…") // what is before a "=" may be part of a URL
	}
	if hint := below(cmd, e.GetSpecifiedName(), "--", (*pflag.FlagSet).Lookup); hint != "" {
		return fmt.Errorf("unknown flag --%s%s", e.GetSpecifiedName(), hint)
	}
	var names cobra.Command // the flags as commands, for which cobra has suggestions
	names.SuggestionsMinimumDistance = 2
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	return fmt.Errorf("unknown flag --%s%s", e.GetSpecifiedName(), meant(&names, e.GetSpecifiedName(), "--"))
}

// below says where a flag belongs that was given before the command that has it. It returns "" if no
// command below cmd has the flag.
func below(cmd *cobra.Command, name, dashes string, lookup func(*pflag.FlagSet, string) *pflag.Flag) string {
	for _, leaf := range leaves(cmd) {
		if f := lookup(leaf.Flags(), name); f != nil && !f.Hidden {
			return fmt.Sprintf(": flags come after the command, as in %s %s%s", leaf.CommandPath(), dashes, name)
		}
	}
	return ""
}

// meant asks whether the user meant a subcommand of cmd. It returns "" if none looks like what
// was typed.
func meant(cmd *cobra.Command, typed, dashes string) string {
	var names []string
	for _, name := range cmd.SuggestionsFor(typed) {
		names = append(names, dashes+name)
	}
	if len(names) == 0 {
		return ""
	}
	return ": did you mean " + either(names) + "?"
}

// either lists words of which the user is to give one.
func either(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Shown returns what a message may show of a word that is perhaps in the wrong place. Of a URL, or
// of a possible part of one, it shows nothing secret.
func Shown(word string) string {
	switch {
	case !strings.Contains(word, "@") && !strings.Contains(word, ":/"):
		return word
	case strings.Contains(word, ","): // a piece of a list may be part of a password
		return "…"
	}
	return redisconn.Redact(word)
}
