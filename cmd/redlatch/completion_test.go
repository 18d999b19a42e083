//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completions are command lines up to the cursor, words that are offered for each, and
// words that are not. Flags begin with what is typed, as they do for a person.
var completions = []struct {
	line     string
	has, not []string
}{
	{"redlatch ", []string{"run", "lock", "unlock", "admit", "deployment", "completion", "help"}, []string{"guard-process", "set"}},
	{"redlatch un", []string{"unlock"}, []string{"run"}},
	{"redlatch run --w", []string{"--wait"}, []string{"--ttl"}},
	{"redlatch run --wait 5 --m", []string{"--min-hold", "--max-ttl", "--max-run"}, []string{"--wait"}},
	{"redlatch run --sh", []string{"--shared"}, nil},
	{"redlatch run --pe", []string{"--permits"}, nil},
	{"redlatch lock --", []string{"--keep"}, []string{"--shared", "--permits"}},
	{"redlatch deployment ", []string{"set", "show"}, []string{"run", "lock"}},
	{"redlatch deployment set --y", []string{"--yes"}, []string{"--wait"}},
	{"redlatch completion ", []string{"bash", "zsh", "fish"}, []string{"run"}},
	{"redlatch help do", []string{"doctor"}, []string{"run"}},
	{"redlatch run job -- tru", []string{"true"}, []string{"--wait", "run"}},
}

// script is the completion for a shell, in a file.
func completionScript(t *testing.T, shell string) string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "_redlatch")
	if err := os.WriteFile(path, []byte(printed(t, "completion", shell)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func checkCompletions(t *testing.T, offered func(line string) []string) {
	t.Helper()
	for _, c := range completions {
		words := offered(c.line)
		for _, word := range c.has {
			if !slices.Contains(words, word) {
				t.Errorf("%q: no %s in %q", c.line, word, words)
			}
		}
		for _, word := range c.not {
			if slices.Contains(words, word) {
				t.Errorf("%q: %s is in %q", c.line, word, words)
			}
		}
	}
}

func TestCompletionInBash(t *testing.T) {
	script := completionScript(t, "bash")
	checkCompletions(t, func(line string) []string {
		out, err := exec.Command("bash", "--norc", "-c", `source "$1"; IFS=' ' read -ra COMP_WORDS <<<"$2"
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _redlatch; printf '%s\n' "${COMPREPLY[@]}"`, "bash", script, line).Output()
		if err != nil {
			t.Error(err)
		}
		return strings.Fields(string(out))
	})
}

func TestCompletionInFish(t *testing.T) {
	script := completionScript(t, "fish")
	checkCompletions(t, func(line string) []string {
		cmd := exec.Command("fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, script, line)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.Output()
		if err != nil {
			t.Error(err)
		}
		var words []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			words = append(words, word)
		}
		return words
	})
}

// zsh completes on a terminal alone, so here it only reads the script, and knows it.
func TestCompletionInZsh(t *testing.T) {
	script := completionScript(t, "zsh")
	cmd := exec.Command("zsh", "-f", "-c", `autoload -Uz compinit && compinit -u -D && source "$1" && print $_comps[redlatch] && functions _redlatch_deployment_set`, "zsh", script)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "_redlatch\n") || !strings.Contains(string(out), "--yes") {
		t.Errorf("%v: %s", err, out)
	}
}

// zsh loads the file at the first completion, and that offers something, too.
func TestFirstCompletionInZsh(t *testing.T) {
	script := completionScript(t, "zsh")
	out, err := exec.Command("zsh", "-f", "-c", `fpath=("$1"); _arguments() { print asked }; _describe() { :; }; compdef() { :; }; autoload -Uz _redlatch; _redlatch`,
		"zsh", filepath.Dir(script)).CombinedOutput()
	if err != nil || string(out) != "asked\n" {
		t.Errorf("%v: %q", err, out)
	}
}

// The page has each command, each flag and each variable, and nothing in it confuses its
// reader.
func TestManPage(t *testing.T) {
	page := printed(t, "man")
	plain := strings.ReplaceAll(page, `\-`, "-")
	for _, cmd := range visible(newProgram(new(command)))[1:] {
		if !strings.Contains(plain, cmd.CommandPath()) {
			t.Errorf("no %s", cmd.CommandPath())
		}
		for _, flag := range shown(cmd) {
			for _, word := range []string{variable(flag), "--" + flag.Name} {
				if !strings.Contains(plain, word) {
					t.Errorf("no %s of %s", word, cmd.CommandPath())
				}
			}
		}
		if !cmd.HasSubCommands() && cmd.Name() != "version" && cmd.Example == "" {
			t.Errorf("no example of %s", cmd.CommandPath())
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip(err)
	}
	groff := exec.Command("groff", "-man", "-ww", "-z", "-Tutf8")
	groff.Stdin = strings.NewReader(page)
	if out, err := groff.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
