package release

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/markdown"
	"github.com/redlatch/redlatch/internal/redistest"
)

// said is what each command in README.md says, as a pattern, and its exit code. A command that is
// not here has not been thought of.
var said = map[string]struct {
	pattern string
	code    int
}{
	"go get github.com/redlatch/redlatch":                         {`added github\.com/redlatch/redlatch v`, 0},
	"go install github.com/redlatch/redlatch/cmd/redlatch@latest": {`downloading github\.com/redlatch/redlatch/cmd/redlatch v`, 0},
	"make demo": {`go run \./cmd/redlatch-torture demo`, 0}, // see script
	"make ci":   {`go test -race `, 0},

	"export REDLATCH_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3": {`^$`, 0},
	"redlatch admit --all":                                {`(?m)(^redlatch: 127.* votes\n?){3}$`, 0},
	"redlatch run --wait 0 nightly-report -- ./report.sh": {`^the report$`, 3},
	"redlatch run stock payment -- ./settle.sh":           {`^stock\npayment$`, 0},
	"redlatch run --shared shop -- ./read.sh":             {`^shop$`, 0},
	"redlatch run --permits 4 pool -- ./fetch.sh":         {`^slot [0-3]$`, 0},
	"h=$(redlatch lock --keep job)":                       {`^$`, 0},
	"redlatch show job":                                   {`held by .*:\d+ since`, 0},
	"redlatch list":                                       {`(?m)^job +.*of 3$`, 0},
	`redlatch unlock job "$h"`:                            {`^$`, 0},
	"redlatch doctor":                                     {`(?m)^all well: 3 of 3 nodes vote`, 0},
	"redlatch deployment show":                            {`(?m)^these settings: MaxTTL 30s\n(?s).*^they agree$`, 0},
}

// program has a block of statements compiled.
const program = `package main

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch"
)

func main() {}

func charge(context.Context, int) error { return nil }

func _(ctx context.Context) error {
%s
	return nil
}
`

// What README.md says to do works for those who have published modules, and says what is promised.
func TestReadme(t *testing.T) {
	o := newOutside(t)
	user, bin := t.TempDir(), t.TempDir()
	o.env = append(o.env, "GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	write(t, filepath.Join(user, "go.mod"), "module example.com/user\n\ngo 1.26\n")
	for name, does := range map[string]string{
		"report": "echo the report\nexit 3", "settle": `echo "$REDLATCH_NAMES"`, "read": `echo "$REDLATCH_NAME"`, "fetch": `echo "slot $REDLATCH_SLOT"`,
	} {
		path := filepath.Join(user, name+".sh")
		write(t, path, "#!/bin/sh\n"+does+"\n")
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	commands := runBlocks(t, o, user)
	for command := range said {
		if !slices.Contains(commands, command) {
			t.Errorf("README.md does not have %s any more", command)
		}
	}
	buildBlocks(t, o, user)
}

// script is a block's commands, each with its output and its exit code in files. A make is of the
// repository and takes long: it only says what it would do. The addresses become the servers'.
func script(commands []string, urls []string, to string) string {
	var s strings.Builder
	for i, command := range commands {
		if rest, ok := strings.CutPrefix(command, "make "); ok {
			command = "make -n -C \"$ROOT\" " + rest
		}
		for n, url := range urls {
			command = regexp.MustCompile(fmt.Sprintf(`redis://10\.0\.0\.%d(:6379)?\b`, n+1)).ReplaceAllLiteralString(command, url)
		}
		fmt.Fprintf(&s, "{ %s\n} >%[2]s/%[3]d.out 2>&1\necho $? >%[2]s/%[3]d.code\n", command, to, i)
	}
	return s.String()
}

// runBlocks runs the shell's blocks of README.md in the folder, each in a shell of its own, and
// returns their commands.
func runBlocks(t *testing.T, o *outside, folder string) (all []string) {
	t.Helper()
	blocks, err := markdown.Blocks(filepath.Join(root, "README.md"), "sh")
	if err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	urls := redistest.URLs(redistest.Nodes(t, 3))
	for _, block := range blocks {
		var commands []string
		for line := range strings.Lines(block.Text) {
			command, _, _ := strings.Cut(line, "  #")
			commands = append(commands, strings.TrimSpace(command))
		}
		to := t.TempDir()
		cmd := exec.Command("sh", "-c", script(commands, urls, to))
		cmd.Dir = folder
		cmd.Env = append(o.env, "ROOT="+repository)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", block, err, out)
		}
		for i, command := range commands {
			out := strings.Join(lines(t, fmt.Sprintf("%s/%d.out", to, i)), "\n")
			code := strings.Join(lines(t, fmt.Sprintf("%s/%d.code", to, i)), "")
			want, known := said[command]
			if !known || code != fmt.Sprint(want.code) || !regexp.MustCompile(want.pattern).MatchString(strings.TrimSuffix(out, "\n")) {
				t.Errorf("%v: %s exits with %s, want %d, and says:\n%s\nwant %s", block, command, code, want.code, out, want.pattern)
			}
		}
		all = append(all, commands...)
	}
	return all
}

// buildBlocks compiles the Go of README.md in the user's module, to which the first block of
// commands has added the library. It brings what it needs, and no more.
func buildBlocks(t *testing.T, o *outside, folder string) {
	t.Helper()
	blocks, err := markdown.Blocks(filepath.Join(root, "README.md"), "go")
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range blocks {
		write(t, filepath.Join(folder, fmt.Sprintf("block%d", i+1), "main.go"), fmt.Sprintf(program, block.Text))
	}
	o.run(t, folder, "go", "vet", "./...")
	o.run(t, folder, "go", "build", "-o", os.DevNull, "./...")

	used := strings.Fields(o.run(t, folder, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./..."))
	slices.Sort(used)
	if want := []string{"example.com/user", "github.com/redis/rueidis", module, "golang.org/x/sys"}; !slices.Equal(slices.Compact(used), want) {
		t.Errorf("what is compiled is of %q, want %q", slices.Compact(used), want)
	}
	// rueidis brings what its own tests use.
	graph := strings.Fields(o.run(t, folder, "go", "list", "-m", "-f", "{{.Path}}", "all"))
	t.Logf("the modules that go.sum may have: %q", graph)
}
