package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// manCmd is `redlatch man`. It makes the manual page from the texts of the help.
type manCmd struct{}

func (manCmd) line() *cobra.Command {
	return &cobra.Command{Use: "man", Short: "Print the manual page.", Args: commandline.Arguments(), Example: `  # read it
  redlatch man | man -l -
  # install it
  redlatch man > /usr/local/share/man/man1/redlatch.1
`}
}

// Run prints the page in the format of man(7).
func (manCmd) Run(*printer) error {
	if _, err := os.Stdout.WriteString(manPage(newProgram(new(command)))); err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}

func manPage(program *cobra.Command) string {
	var m manText
	m.line(`.TH REDLATCH 1 "" "redlatch" "User Commands"`)
	m.section("NAME")
	m.text("redlatch - " + lowerFirst(strings.TrimSuffix(program.Short, ".")))
	m.section("SYNOPSIS")
	commands := visible(program)[1:]
	for _, d := range commands {
		if !d.HasSubCommands() {
			m.line(".br")
			m.text(d.UseLine())
		}
	}
	m.section("DESCRIPTION")
	m.text("A lock is held on one Redis or Valkey server, or on a majority of several independent ones. " + commandline.Durations)
	m.section("COMMANDS")
	environment := make(map[string]bool)
	var variables []*pflag.Flag
	for _, d := range commands {
		if d.HasSubCommands() {
			continue
		}
		m.line(".SS " + manEscape(d.UseLine()))
		m.text(d.Short)
		m.paragraphs(d.Long)
		for _, flag := range shown(d) {
			spelling := strings.Join(spellings(flag), ", ")
			if takesValue(flag) {
				spelling += " " + placeholder(flag)
			}
			_, help := pflag.UnquoteUsage(flag)
			m.item(spelling, help)
			if name := variable(flag); name != "" && !environment[name] {
				environment[name] = true
				variables = append(variables, flag)
			}
		}
		if d.Example != "" {
			m.line(".PP")
			m.text("Examples:")
			m.verbatim(d.Example)
		}
	}
	m.section("ENVIRONMENT")
	m.text("Each variable stands for a flag. A flag on the command line overrides its variable. An empty variable counts as unset, except for REDLATCH_NODES.")
	for _, flag := range variables {
		m.item(variable(flag), "--"+flag.Name)
	}
	m.item(envPassword, "The password for every URL that has none.")
	m.item("REDLATCH_NAME, REDLATCH_TOKEN, REDLATCH_DEADLINE", "Set by redlatch run for COMMAND: the name of the lock, its fencing token, and the time until which the lock was certain to be held when COMMAND started.")
	m.item("REDLATCH_NAMES, REDLATCH_SLOT", "Set by redlatch run for COMMAND: all names of the lock, one per line, and with --permits the slot of the permit.")
	m.section("SEE ALSO")
	m.text("flock(1), timeout(1)")
	return m.String()
}

func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }

// manText is the text of a manual page.
type manText struct{ strings.Builder }

func (m *manText) line(text string) { fmt.Fprintln(m, text) }

func (m *manText) section(title string) { m.line(".SH " + title) }

// text adds a line of words.
func (m *manText) text(text string) { m.line(manEscape(text)) }

// item adds a flag or a variable, and what it means.
func (m *manText) item(name, help string) {
	m.line(".TP")
	m.line(`\fB` + manEscape(name) + `\fR`)
	if help == "" {
		help = "-"
	}
	m.text(help)
}

func (m *manText) verbatim(text string) {
	m.line(".RS 4")
	m.line(".nf")
	for line := range strings.Lines(text) {
		m.text(strings.TrimRight(line, "\n"))
	}
	m.line(".fi")
	m.line(".RE")
}

// paragraphs adds the long text of a command's help. It leaves lines that begin with a tab as
// they are.
func (m *manText) paragraphs(text string) {
	for block := range strings.SplitSeq(text, "\n\n") {
		switch {
		case block == "":
		case strings.HasPrefix(block, "\t"):
			m.verbatim(strings.ReplaceAll(strings.TrimPrefix(block, "\t"), "\n\t", "\n"))
		default:
			m.line(".PP")
			m.text(strings.ReplaceAll(block, "\n", " "))
		}
	}
}

// manEscape escapes the characters that have a meaning in roff (groff_man(7)).
func manEscape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
