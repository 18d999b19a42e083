package commandline

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// width is how many characters a line of a help has at most, but for lines that are left as
	// they are.
	width = 80
	// column is where the text beside flags and arguments begins.
	column = 32
)

// WriteHelp writes the command's help.
func (c *Command) WriteHelp(w io.Writer) error {
	var h helpText
	fmt.Fprintf(&h, "Usage: %s\n\n", c.Usage())
	h.paragraph("", c.Help)
	if detail := c.Detail(); detail != "" {
		h.WriteByte('\n')
		h.text(detail)
	}
	if len(c.Args) > 0 {
		h.WriteString("\nArguments:\n")
		for _, a := range c.Args {
			h.row("  <"+a.Name+">", a.Help)
		}
	}
	h.WriteString("\nFlags:\n")
	for _, f := range c.AllFlags() {
		h.flag(f)
	}
	if len(c.Commands) > 0 {
		h.WriteString("\nCommands:\n")
		for i, below := range c.leaves() {
			if i > 0 {
				h.WriteByte('\n')
			}
			fmt.Fprintf(&h, "  %s\n", below.synopsis())
			h.paragraph("    ", below.Help)
		}
		fmt.Fprintf(&h, "\nRun \"%s <command> --help\" for more information on a command.\n", c.FullPath())
	}
	if len(c.Examples) > 0 {
		h.WriteString("\nExamples:\n")
		for _, e := range c.Examples {
			fmt.Fprintf(&h, "  # %s\n  %s\n", e.What, e.Line)
		}
	}
	_, err := io.WriteString(w, h.String())
	return err
}

// leaves are the commands below it that do something, but for those that are hidden.
func (c *Command) leaves() []*Command {
	var leaves []*Command
	for _, below := range c.Commands {
		switch {
		case below.Hidden:
		case len(below.Commands) > 0:
			leaves = append(leaves, below.leaves()...)
		default:
			leaves = append(leaves, below)
		}
	}
	return leaves
}

// helpText is the text of a help.
type helpText struct{ strings.Builder }

func (h *helpText) flag(f *Flag) {
	left := "      --" + f.Name
	if f.Short != 0 {
		left = "  -" + string(f.Short) + ", --" + f.Name
	}
	if f.TakesValue() {
		left += "=" + f.Placeholder()
	}
	h.row(left, f.FullHelp())
}

// row writes what something is called, and beside it what it means.
func (h *helpText) row(left, text string) {
	pad := strings.Repeat(" ", column)
	lines := wrapped(text, width-column)
	if utf8.RuneCountInString(left) > column-2 {
		fmt.Fprintln(h, left)
		left = ""
	}
	for i, line := range lines {
		begin := pad
		if i == 0 {
			begin = left + pad[utf8.RuneCountInString(left):]
		}
		fmt.Fprintln(h, begin+line)
	}
}

// text writes paragraphs, of which lines with a tab are left as they are.
func (h *helpText) text(text string) {
	for i, block := range strings.Split(strings.TrimRight(text, "\n"), "\n\n") {
		if i > 0 {
			h.WriteByte('\n')
		}
		if !strings.HasPrefix(block, "\t") {
			h.paragraph("", block)
			continue
		}
		for line := range strings.Lines(block) {
			fmt.Fprintln(h, strings.TrimRight("    "+strings.TrimPrefix(strings.TrimRight(line, "\n"), "\t"), " "))
		}
	}
}

func (h *helpText) paragraph(indent, text string) {
	for _, line := range wrapped(text, width-len(indent)) {
		fmt.Fprintln(h, indent+line)
	}
}

// wrapped are the lines of a text that have limit characters at most.
func wrapped(text string, limit int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > limit:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
