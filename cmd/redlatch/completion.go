package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// completionCmd is `redlatch completion`. The scripts neither ask a server nor call
// redlatch: all that they know comes from the parser's commands and flags.
type completionCmd struct {
	Shell string
}

// line is its command line.
func (c *completionCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion <shell>",
		Short: "Print a script that completes command lines in a shell.",
		Long: `Prints a completion script. Write it to where the shell finds it:

	bash   redlatch completion bash > ~/.local/share/bash-completion/completions/redlatch
	zsh    redlatch completion zsh > "${fpath[1]}/_redlatch"
	fish   redlatch completion fish > ~/.config/fish/completions/redlatch.fish

Arguments:

	<shell>  bash, zsh or fish.`,
		Example: `  # for the running shell
  source <(redlatch completion bash)
`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      commandline.Arguments(&c.Shell),
	}
	return cmd
}

// Run prints the script.
func (c *completionCmd) Run(*printer) error {
	var text strings.Builder
	switch commands := visible(newProgram(new(command))); c.Shell {
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

// visible returns the command and all commands below it that are not hidden.
func visible(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(commandline.All(cmd), func(c *cobra.Command) bool { return c.Hidden })
}

// path returns the words that name a command, after the program's name.
func path(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
}

// shown returns the command's flags that are not hidden.
func shown(cmd *cobra.Command) []*pflag.Flag {
	var flags []*pflag.Flag
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f)
		}
	})
	return flags
}

func takesValue(f *pflag.Flag) bool { return f.NoOptDefVal == "" }

// placeholder returns the word that stands for the flag's value in the help.
func placeholder(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	return name
}

// takesFile reports whether the flag's value is a file's name.
func takesFile(f *pflag.Flag) bool { return placeholder(f) == "FILE" }

// spellings returns the forms in which the flag can be typed.
func spellings(f *pflag.Flag) []string {
	if f.Shorthand != "" {
		return []string{"-" + f.Shorthand, "--" + f.Name}
	}
	return []string{"--" + f.Name}
}

// runsCommand reports whether the command line ends with another command.
func runsCommand(cmd *cobra.Command) bool { return path(cmd) == "run" }

// choices returns the possible arguments of the command, if there is a list of them.
func choices(cmd *cobra.Command) []string {
	if len(cmd.ValidArgs) > 0 {
		return cmd.ValidArgs
	}
	if path(cmd) == "help" {
		cmd = cmd.Root()
	}
	var names []string
	for _, below := range commandline.Visible(cmd) {
		names = append(names, below.Name())
	}
	return names
}

// bashCompletion writes the script for bash. The script does not need the package
// bash-completion, but uses it, if it is there, to complete COMMAND.
func bashCompletion(w io.Writer, commands []*cobra.Command) {
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
		parent, name := "", path(d)
		if i := strings.LastIndex(path(d), " "); i >= 0 {
			parent, name = path(d)[:i], path(d)[i+1:]
		}
		fmt.Fprintf(w, "            '%s %s') command='%s' ;;\n", parent, name, path(d))
	}
	fmt.Fprint(w, "        esac\n    done\n    case $command in\n")
	for _, d := range commands {
		var flags, values, files []string
		for _, flag := range shown(d) {
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
		fmt.Fprintf(w, "        '%s') flags='%s' values=' %s ' files=' %s ' words='%s' ;;\n", path(d), strings.Join(flags, " "),
			strings.Join(values, " "), strings.Join(files, " "), strings.Join(choices(d), " "))
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
func fishCompletion(w io.Writer, commands []*cobra.Command) {
	fmt.Fprint(w, "# fish completion for redlatch\ncomplete -c redlatch -f\n")
	for _, d := range commands {
		at := "__fish_use_subcommand"
		if path(d) != "" {
			var seen []string
			for word := range strings.FieldsSeq(path(d)) {
				seen = append(seen, "__fish_seen_subcommand_from "+word)
			}
			at = strings.Join(seen, "; and ")
		}
		for _, next := range commandline.Visible(d) {
			line := at
			if path(d) != "" {
				line += "; and not __fish_seen_subcommand_from " + strings.Join(choices(d), " ")
			}
			fmt.Fprintf(w, "complete -c redlatch -n %s -a %s -d %s\n", shellQuote(line), next.Name(), shellQuote(next.Short))
		}
		if list := choices(d); len(commandline.Visible(d)) == 0 && len(list) > 0 {
			fmt.Fprintf(w, "complete -c redlatch -n %s -a %s\n", shellQuote(at), shellQuote(strings.Join(list, " ")))
		}
		for _, flag := range shown(d) {
			short, value := "", ""
			if flag.Shorthand != "" {
				short = " -s " + flag.Shorthand
			}
			switch {
			case takesFile(flag):
				value = " -r -F"
			case takesValue(flag):
				value = " -x"
			}
			fmt.Fprintf(w, "complete -c redlatch -n %s -l %s%s%s -d %s\n", shellQuote(at), flag.Name, short, value, shellQuote(firstSentence(flag)))
		}
		if runsCommand(d) {
			fmt.Fprintf(w, "complete -c redlatch -n '%s; and contains -- -- (commandline -opc)' -x -a '(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline -opc)) - 1))'\n", at)
		}
	}
}

// zshCompletion writes the script for zsh.
func zshCompletion(w io.Writer, commands []*cobra.Command) {
	fmt.Fprint(w, "#compdef redlatch\n# zsh completion for redlatch\n")
	function := func(path string) string { return strings.ReplaceAll("_redlatch "+path, " ", "_") }
	for _, d := range commands {
		name := strings.TrimSuffix(function(path(d)), "_")
		fmt.Fprintf(w, "\n%s() {\n", name)
		if len(commandline.Visible(d)) > 0 {
			fmt.Fprint(w, "    local context state line\n    local -a subcommands\n    typeset -A opt_args\n")
		}
		if path(d) == "" { // COMMAND is completed as if it were the whole line
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
		if len(commandline.Visible(d)) > 0 {
			fmt.Fprint(w, " -C")
		}
		for _, flag := range shown(d) {
			help := zshText(firstSentence(flag))
			value := ""
			switch {
			case takesFile(flag):
				value = ":" + placeholder(flag) + ":_files"
			case takesValue(flag):
				value = ":" + zshText(placeholder(flag)) + ": "
			}
			assign := ""
			if takesValue(flag) {
				assign = "="
			}
			fmt.Fprintf(w, " \\\n        %s", shellQuote("--"+flag.Name+assign+"["+help+"]"+value))
			if flag.Shorthand != "" {
				fmt.Fprintf(w, " \\\n        %s", shellQuote("-"+flag.Shorthand+"["+help+"]"+value))
			}
		}
		list := choices(d)
		switch {
		case len(commandline.Visible(d)) > 0:
			fmt.Fprint(w, " \\\n        '1:command:->command' \\\n        '*::argument:->argument'\n    case $state in\n    command)\n        subcommands=(\n")
			for _, next := range commandline.Visible(d) {
				fmt.Fprintf(w, "            %s\n", shellQuote(next.Name()+":"+next.Short))
			}
			fmt.Fprint(w, "        )\n        _describe command subcommands ;;\n    argument)\n        case $words[1] in\n")
			for _, next := range commandline.Visible(d) {
				fmt.Fprintf(w, "        %s) %s ;;\n", next.Name(), function(path(next)))
			}
			fmt.Fprint(w, "        esac ;;\n    esac\n")
		case len(list) > 0:
			fmt.Fprintf(w, " \\\n        '*:%s:(%s)'\n", commandline.Placeholders(d)[0], strings.Join(list, " "))
		case runsCommand(d):
			fmt.Fprint(w, " \\\n        '*:name: '\n")
		default:
			for i, name := range commandline.Placeholders(d) {
				fmt.Fprintf(w, " \\\n        '%d:%s: '", i+1, name)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, "}\n")
	}
	// zsh loads the file as a function at the first completion, which this call then answers.
	fmt.Fprint(w, "\nif [[ $funcstack[1] == _redlatch ]]; then\n    _redlatch\nelse\n    compdef _redlatch redlatch\nfi\n")
}

// firstSentence returns the part of a flag's help that fits into a menu.
func firstSentence(f *pflag.Flag) string {
	_, help := pflag.UnquoteUsage(f)
	for _, end := range []string{" ($REDLATCH", ". ", ": ", "; "} {
		if first, _, found := strings.Cut(help, end); found {
			help = first
		}
	}
	return strings.TrimSuffix(help, ".")
}

// zshText escapes the characters that have a meaning in an argument of _arguments.
func zshText(text string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
}
