package commandline

import (
	"fmt"
	"go/doc/comment"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// width is the greatest length of a line of help, in characters. Lines that begin with a tab in
// the command's texts may be longer.
const width = 80

// WriteHelp writes the command's help.
func WriteHelp(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n\n%s", cmd.UseLine(), wrapped(cmd.Short+"\n\n"+cmd.Long, ""))
	fmt.Fprintf(&b, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(width))
	takesDuration := false
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		takesDuration = takesDuration || !flag.Hidden && flag.Value.Type() == durationType
	})
	if takesDuration {
		fmt.Fprintf(&b, "\n%s", wrapped(Durations, ""))
	}
	if cmd.HasSubCommands() {
		b.WriteString("\nCommands:\n")
		for i, below := range leaves(cmd) {
			if i > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "  %s\n%s", strings.TrimPrefix(below.UseLine(), cmd.Root().Name()+" "), wrapped(below.Short, "    "))
		}
		fmt.Fprintf(&b, "\nRun \"%s <command> --help\" for more information on a command.\n", cmd.CommandPath())
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s", cmd.Example)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// leaves returns the visible commands below cmd that have no subcommands.
func leaves(cmd *cobra.Command) []*cobra.Command {
	var found []*cobra.Command
	for _, below := range Visible(cmd) {
		if below.HasSubCommands() {
			found = append(found, leaves(below)...)
		} else {
			found = append(found, below)
		}
	}
	return found
}

// wrapped breaks text into lines of at most width characters, as go doc does.
func wrapped(text, indent string) string {
	var parser comment.Parser
	printer := comment.Printer{TextPrefix: indent, TextCodePrefix: indent + "    ", TextWidth: width - len(indent)}
	return string(printer.Text(parser.Parse(text)))
}
