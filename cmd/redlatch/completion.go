package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/commandline"
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
	var text strings.Builder
	switch commands := visible(newProgram()); c.Shell {
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

// visible are the command and all those below it that are in its help.
func visible(command *commandline.Command) []*commandline.Command {
	return slices.DeleteFunc(command.All(), func(c *commandline.Command) bool { return c.Hidden })
}

// below are the commands that may follow.
func below(command *commandline.Command) []*commandline.Command {
	return slices.DeleteFunc(slices.Clone(command.Commands), func(c *commandline.Command) bool { return c.Hidden })
}

func names(commands []*commandline.Command) []string {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.Name
	}
	return names
}

// runsCommand reports whether the rest of the line is a command of its own.
func runsCommand(command *commandline.Command) bool { return command.Path() == "run" }

// choices are what the command's arguments can be, where there is a list of them.
func choices(command *commandline.Command, all []*commandline.Command) []string {
	switch {
	case command.Path() == "help":
		return names(below(all[0]))
	case len(command.Args) > 0:
		return command.Args[0].Enum
	}
	return names(below(command))
}

// bashCompletion writes the script for bash. It needs no package bash-completion, and has
// COMMAND completed by it where it is there.
func bashCompletion(w io.Writer, commands []*commandline.Command) {
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
		parent, name := "", d.Path()
		if i := strings.LastIndex(d.Path(), " "); i >= 0 {
			parent, name = d.Path()[:i], d.Path()[i+1:]
		}
		fmt.Fprintf(w, "            '%s %s') command='%s' ;;\n", parent, name, d.Path())
	}
	fmt.Fprint(w, "        esac\n    done\n    case $command in\n")
	for _, d := range commands {
		var flags, values, files []string
		for _, flag := range d.AllFlags() {
			for _, spelling := range flag.Spellings() {
				flags = append(flags, spelling)
				switch {
				case flag.TakesFile():
					files = append(files, spelling)
				case flag.TakesValue():
					values = append(values, spelling)
				}
			}
		}
		fmt.Fprintf(w, "        '%s') flags='%s' values=' %s ' files=' %s ' words='%s' ;;\n", d.Path(), strings.Join(flags, " "),
			strings.Join(values, " "), strings.Join(files, " "), strings.Join(choices(d, commands), " "))
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
func fishCompletion(w io.Writer, commands []*commandline.Command) {
	fmt.Fprint(w, "# fish completion for redlatch\ncomplete -c redlatch -f\n")
	for _, d := range commands {
		at := "__fish_use_subcommand"
		if d.Path() != "" {
			var seen []string
			for word := range strings.FieldsSeq(d.Path()) {
				seen = append(seen, "__fish_seen_subcommand_from "+word)
			}
			at = strings.Join(seen, "; and ")
		}
		for _, next := range below(d) {
			line := at
			if d.Path() != "" {
				line += "; and not __fish_seen_subcommand_from " + strings.Join(names(below(d)), " ")
			}
			fmt.Fprintf(w, "complete -c redlatch -n %s -a %s -d %s\n", shellQuote(line), next.Name, shellQuote(next.Help))
		}
		if list := choices(d, commands); len(below(d)) == 0 && len(list) > 0 {
			fmt.Fprintf(w, "complete -c redlatch -n %s -a %s\n", shellQuote(at), shellQuote(strings.Join(list, " ")))
		}
		for _, flag := range d.AllFlags() {
			short, value := "", ""
			if flag.Short != 0 {
				short = " -s " + string(flag.Short)
			}
			switch {
			case flag.TakesFile():
				value = " -r -F"
			case flag.TakesValue():
				value = " -x"
			}
			fmt.Fprintf(w, "complete -c redlatch -n %s -l %s%s%s -d %s\n", shellQuote(at), flag.Name, short, value, shellQuote(firstSentence(flag.Help)))
		}
		if runsCommand(d) {
			fmt.Fprintf(w, "complete -c redlatch -n '%s; and contains -- -- (commandline -opc)' -x -a '(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline -opc)) - 1))'\n", at)
		}
	}
}

// zshCompletion writes the script for zsh.
func zshCompletion(w io.Writer, commands []*commandline.Command) {
	fmt.Fprint(w, "#compdef redlatch\n# zsh completion for redlatch\n")
	function := func(path string) string { return strings.ReplaceAll("_redlatch "+path, " ", "_") }
	for _, d := range commands {
		name := strings.TrimSuffix(function(d.Path()), "_")
		fmt.Fprintf(w, "\n%s() {\n", name)
		if len(below(d)) > 0 {
			fmt.Fprint(w, "    local context state line\n    local -a subcommands\n    typeset -A opt_args\n")
		}
		if d.Path() == "" { // COMMAND is completed as if it stood alone
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
		if len(below(d)) > 0 {
			fmt.Fprint(w, " -C")
		}
		for _, flag := range d.AllFlags() {
			help := zshText(firstSentence(flag.Help))
			value := ""
			switch {
			case flag.TakesFile():
				value = ":" + flag.Placeholder() + ":_files"
			case flag.TakesValue():
				value = ":" + zshText(flag.Placeholder()) + ": "
			}
			assign := ""
			if flag.TakesValue() {
				assign = "="
			}
			fmt.Fprintf(w, " \\\n        %s", shellQuote("--"+flag.Name+assign+"["+help+"]"+value))
			if flag.Short != 0 {
				fmt.Fprintf(w, " \\\n        %s", shellQuote("-"+string(flag.Short)+"["+help+"]"+value))
			}
		}
		list := choices(d, commands)
		switch {
		case len(below(d)) > 0:
			fmt.Fprint(w, " \\\n        '1:command:->command' \\\n        '*::argument:->argument'\n    case $state in\n    command)\n        subcommands=(\n")
			for _, next := range below(d) {
				fmt.Fprintf(w, "            %s\n", shellQuote(next.Name+":"+next.Help))
			}
			fmt.Fprint(w, "        )\n        _describe command subcommands ;;\n    argument)\n        case $words[1] in\n")
			for _, next := range below(d) {
				fmt.Fprintf(w, "        %s) %s ;;\n", next.Name, function(next.Path()))
			}
			fmt.Fprint(w, "        esac ;;\n    esac\n")
		case len(list) > 0:
			fmt.Fprintf(w, " \\\n        '*:%s:(%s)'\n", d.Args[0].Name, strings.Join(list, " "))
		case runsCommand(d):
			fmt.Fprint(w, " \\\n        '1:name: '\n")
		default:
			for i, arg := range d.Args {
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
