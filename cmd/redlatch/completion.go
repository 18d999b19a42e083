package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd is `redlatch completion`. The scripts ask no server and do not call
// redlatch: what they know is what the parser knows.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help says where the scripts go.
func (*completionCmd) Help() string {
	return `Prints a script for the shell, to be read by it at its start:

	bash   redlatch completion bash > ~/.local/share/bash-completion/completions/redlatch
	zsh    redlatch completion zsh > "${fpath[1]}/_redlatch"
	fish   redlatch completion fish > ~/.config/fish/completions/redlatch.fish`
}

// Run prints the script.
func (c *completionCmd) Run(*printer) error {
	parser, err := newParser()
	if err != nil {
		return err
	}
	var text strings.Builder
	switch commands := commandsOf(parser.Model.Node); c.Shell {
	case "bash":
		bashCompletion(&text, commands)
	case "zsh":
		zshCompletion(&text, commands)
	case "fish":
		fishCompletion(&text, commands)
	}
	if _, err := os.Stdout.WriteString(text.String()); err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}

// described is a command as the completion and the man page need it.
type described struct {
	node *kong.Node
	// path is what is typed: "deployment set".
	path  string
	flags []*kong.Flag
	// below are the names of the commands below this one.
	below []*kong.Node
}

// commandsOf are root, as the first, and all the commands below it that are not hidden.
func commandsOf(root *kong.Node) []described {
	path := ""
	if root.Type == kong.CommandNode {
		path = commandPath(root)
	}
	d := described{node: root, path: path}
	for _, flag := range root.Flags {
		if !flag.Hidden {
			d.flags = append(d.flags, flag)
		}
	}
	if root.Type == kong.CommandNode {
		d.flags = append([]*kong.Flag{helpFlag(root)}, d.flags...)
	}
	var more []described
	for _, child := range root.Children {
		if !child.Hidden && child.Type == kong.CommandNode {
			d.below = append(d.below, child)
			more = append(more, commandsOf(child)...)
		}
	}
	return append([]described{d}, more...)
}

// helpFlag is --help, which the parser has at the root for all.
func helpFlag(command *kong.Node) *kong.Flag {
	root := command
	for root.Parent != nil {
		root = root.Parent
	}
	for _, flag := range root.Flags {
		if flag.Name == "help" {
			return flag
		}
	}
	return nil
}

// runs reports whether the rest of the line is a command of its own.
func (d described) runs() bool { return d.path == "run" }

// words are what the command's arguments can be, where there is a list of them.
func (d described) words(all []described) []string {
	switch d.path {
	case "completion":
		return []string{"bash", "zsh", "fish"}
	case "help":
		var names []string
		for _, command := range all[0].below {
			names = append(names, command.Name)
		}
		return names
	}
	var names []string
	for _, command := range d.below {
		names = append(names, command.Name)
	}
	return names
}

// takesValue reports whether a flag has one.
func takesValue(flag *kong.Flag) bool { return !flag.IsBool() && !flag.IsCounter() }

// takesFile reports whether it is a file's name.
func takesFile(flag *kong.Flag) bool { return flag.PlaceHolder == "FILE" || flag.PlaceHolder == "DIR" }

// spellings are a flag's, as they are typed.
func spellings(flag *kong.Flag) []string {
	if flag.Short != 0 {
		return []string{"-" + string(flag.Short), "--" + flag.Name}
	}
	return []string{"--" + flag.Name}
}

// bashCompletion writes the script for bash. It needs no package bash-completion, and has
// COMMAND completed by it where it is there.
func bashCompletion(w io.Writer, commands []described) {
	fmt.Fprint(w, `# bash completion for redlatch
_redlatch() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= flags= values= files= words= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$command ${COMP_WORDS[i]}" in
            'run --')
                if declare -F _command_offset >/dev/null; then
                    _command_offset $((i + 1))
                elif ((i + 1 == COMP_CWORD)); then
                    COMPREPLY=($(compgen -c -- "$cur"))
                else
                    compopt -o default
                fi
                return ;;
`)
	for _, d := range commands[1:] {
		parent, name := "", d.path
		if i := strings.LastIndex(d.path, " "); i >= 0 {
			parent, name = d.path[:i], d.path[i+1:]
		}
		fmt.Fprintf(w, "            '%s %s') command='%s' ;;\n", parent, name, d.path)
	}
	fmt.Fprint(w, "        esac\n    done\n    case $command in\n")
	for _, d := range commands {
		var flags, values, files []string
		for _, flag := range d.flags {
			for _, spelling := range spellings(flag) {
				flags = append(flags, spelling)
				switch {
				case takesFile(flag):
					files = append(files, spelling)
				case takesValue(flag):
					values = append(values, spelling)
				}
			}
		}
		fmt.Fprintf(w, "        '%s') flags='%s' values=' %s ' files=' %s ' words='%s' ;;\n", d.path, strings.Join(flags, " "),
			strings.Join(values, " "), strings.Join(files, " "), strings.Join(d.words(commands), " "))
	}
	fmt.Fprint(w, `    esac
    if [[ $files == *" $prev "* ]]; then
        compopt -o default
    elif [[ $values == *" $prev "* ]]; then
        return
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    fi
}
complete -F _redlatch redlatch
`)
}

// fishCompletion writes the script for fish.
func fishCompletion(w io.Writer, commands []described) {
	fmt.Fprint(w, "# fish completion for redlatch\ncomplete -c redlatch -f\n")
	for _, d := range commands {
		at := "__fish_use_subcommand"
		if d.path != "" {
			var seen []string
			for word := range strings.FieldsSeq(d.path) {
				seen = append(seen, "__fish_seen_subcommand_from "+word)
			}
			at = strings.Join(seen, "; and ")
		}
		for _, below := range d.below {
			line := at
			if d.path != "" {
				var names []string
				for _, other := range d.below {
					names = append(names, other.Name)
				}
				line += "; and not __fish_seen_subcommand_from " + strings.Join(names, " ")
			}
			fmt.Fprintf(w, "complete -c redlatch -n %s -a %s -d %s\n", shellQuote(line), below.Name, shellQuote(below.Help))
		}
		if words := d.words(commands); len(d.below) == 0 && len(words) > 0 {
			fmt.Fprintf(w, "complete -c redlatch -n %s -a %s\n", shellQuote(at), shellQuote(strings.Join(words, " ")))
		}
		for _, flag := range d.flags {
			short, value := "", ""
			if flag.Short != 0 {
				short = " -s " + string(flag.Short)
			}
			switch {
			case takesFile(flag):
				value = " -r -F"
			case takesValue(flag):
				value = " -x"
			}
			fmt.Fprintf(w, "complete -c redlatch -n %s -l %s%s%s -d %s\n", shellQuote(at), flag.Name, short, value, shellQuote(firstSentence(flag.Help)))
		}
		if d.runs() {
			fmt.Fprintf(w, "complete -c redlatch -n '%s; and contains -- -- (commandline -opc)' -x -a '(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline -opc)) - 1))'\n", at)
		}
	}
}

// zshCompletion writes the script for zsh.
func zshCompletion(w io.Writer, commands []described) {
	fmt.Fprint(w, "#compdef redlatch\n# zsh completion for redlatch\n")
	function := func(path string) string { return strings.ReplaceAll("_redlatch "+path, " ", "_") }
	for _, d := range commands {
		name := strings.TrimSuffix(function(d.path), "_")
		fmt.Fprintf(w, "\n%s() {\n", name)
		if len(d.below) > 0 {
			fmt.Fprint(w, "    local context state line\n    local -a subcommands\n    typeset -A opt_args\n")
		}
		if d.path == "" { // COMMAND is completed as if it stood alone
			fmt.Fprint(w, `    local -i i
    for (( i = 3; i < CURRENT; i++ )); do
        if [[ $words[2] == run && $words[i] == -- ]]; then
            shift $i words
            (( CURRENT -= i ))
            _normal
            return
        fi
    done
`)
		}
		fmt.Fprint(w, "    _arguments -s")
		if len(d.below) > 0 {
			fmt.Fprint(w, " -C")
		}
		for _, flag := range d.flags {
			help := zshText(firstSentence(flag.Help))
			value := ""
			switch {
			case takesFile(flag):
				value = ":" + flag.PlaceHolder + ":_files"
			case takesValue(flag):
				value = ":" + zshText(flag.FormatPlaceHolder()) + ": "
			}
			assign := ""
			if takesValue(flag) {
				assign = "="
			}
			fmt.Fprintf(w, " \\\n        %s", shellQuote("--"+flag.Name+assign+"["+help+"]"+value))
			if flag.Short != 0 {
				fmt.Fprintf(w, " \\\n        %s", shellQuote("-"+string(flag.Short)+"["+help+"]"+value))
			}
		}
		words := d.words(commands)
		switch {
		case len(d.below) > 0:
			fmt.Fprint(w, " \\\n        '1:command:->command' \\\n        '*::argument:->argument'\n    case $state in\n    command)\n        subcommands=(\n")
			for _, below := range d.below {
				fmt.Fprintf(w, "            %s\n", shellQuote(below.Name+":"+below.Help))
			}
			fmt.Fprint(w, "        )\n        _describe command subcommands ;;\n    argument)\n        case $words[1] in\n")
			for _, below := range d.below {
				fmt.Fprintf(w, "        %s) %s ;;\n", below.Name, function(commandPath(below)))
			}
			fmt.Fprint(w, "        esac ;;\n    esac\n")
		case len(words) > 0:
			fmt.Fprintf(w, " \\\n        '*:%s:(%s)'\n", strings.ToLower(d.node.Positional[0].Name), strings.Join(words, " "))
		case d.runs():
			fmt.Fprint(w, " \\\n        '1:name: '\n")
		default:
			for i, arg := range d.node.Positional {
				fmt.Fprintf(w, " \\\n        '%d:%s: '", i+1, arg.Name)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, "}\n")
	}
	fmt.Fprint(w, "\ncompdef _redlatch redlatch\n")
}

// firstSentence is how much of a flag's help fits into a menu.
func firstSentence(help string) string {
	for _, end := range []string{". ", ": ", "; "} {
		if first, _, found := strings.Cut(help, end); found {
			help = first
		}
	}
	return strings.TrimSuffix(help, ".")
}

// zshText escapes what means something in an argument of _arguments.
func zshText(text string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
}
