package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// manCmd is `redlatch man`: the manual page, from what the help is made from.
type manCmd struct{}

// Run prints it as man(7) has it.
func (manCmd) Run(*printer) error {
	parser, err := newParser()
	if err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(manPage(parser.Model)); err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}

func manPage(app *kong.Application) string {
	var m manText
	m.line(`.TH REDLATCH 1 "" "redlatch" "User Commands"`)
	m.section("NAME")
	m.text("redlatch - " + lowerFirst(strings.TrimSuffix(app.Help, ".")))
	m.section("SYNOPSIS")
	commands := commandsOf(app.Node)[1:]
	for _, d := range commands {
		if len(d.below) == 0 {
			m.line(".br")
			m.text(synopsis(d.node))
		}
	}
	m.section("DESCRIPTION")
	m.text("Locks are held on one Redis or Valkey server, or by a majority of several independent ones. A duration is a number of seconds, such as 10 or 0.5, or 500ms, 1m30s, 2h.")
	m.section("COMMANDS")
	environment := make(map[string]bool)
	var variables []*kong.Flag
	for _, d := range commands {
		if len(d.below) > 0 {
			continue
		}
		m.line(".SS " + manEscape(synopsis(d.node)))
		m.text(d.node.Help)
		m.paragraphs(d.node.Detail)
		for _, arg := range d.node.Positional {
			m.item(strings.ToUpper(arg.Name), arg.Help)
		}
		for _, flag := range d.flags {
			spelling := strings.Join(spellings(flag), ", ")
			if takesValue(flag) {
				spelling += "=" + flag.FormatPlaceHolder()
			}
			m.item(spelling, kong.DefaultHelpValueFormatter(flag.Value))
			for _, name := range flag.Tag.Envs {
				if !environment[name] {
					environment[name] = true
					variables = append(variables, flag)
				}
			}
		}
		if lines := examplesOf(d.node); len(lines) > 0 {
			m.line(".PP")
			m.text("Examples:")
			for _, e := range lines {
				m.line(".PP")
				m.text("# " + e.what)
				m.verbatim(e.command)
			}
		}
	}
	m.section("ENVIRONMENT")
	m.text("Each stands for its flag, which goes before it; an empty one counts as unset.")
	for _, flag := range variables {
		m.item(strings.Join(flag.Tag.Envs, ", "), "--"+flag.Name)
	}
	m.item("REDLATCH_PASSWORD", "The password for every URL that has none.")
	m.item("REDLATCH_NAME, REDLATCH_TOKEN, REDLATCH_DEADLINE", "What COMMAND of redlatch run finds: the name of the lock, its fencing token, and until when it was certain to be held as COMMAND started.")
	m.section("SEE ALSO")
	m.text("flock(1), timeout(1)")
	return m.String()
}

// synopsis is a command's usage line.
func synopsis(command *kong.Node) string {
	if cmd, ok := command.Target.Addr().Interface().(interface{ Usage() string }); ok {
		return cmd.Usage()
	}
	return "redlatch " + commandPath(command) + strings.TrimPrefix(command.Summary(), command.Path())
}

func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }

// manText is the text of a page.
type manText struct{ strings.Builder }

func (m *manText) line(text string) { fmt.Fprintln(m, text) }

func (m *manText) section(title string) { m.line(".SH " + title) }

// text is a line of words.
func (m *manText) text(text string) { m.line(manEscape(text)) }

// item is a flag or the like, and what it means.
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

// paragraphs are the long text of a command's help, of which lines with a tab are left as
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

// manEscape has text mean itself to roff (groff_man(7)).
func manEscape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
