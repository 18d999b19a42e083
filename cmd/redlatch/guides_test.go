//go:build unix

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redlatch/redlatch/internal/markdown"
	"github.com/redlatch/redlatch/internal/redistest"
)

const guides = "../../docs/guides"

// TestGuides runs what the guides show of the shell. Each has a script in testdata/guide, which
// starts servers, runs the page's blocks in their order, and does between them what the page says
// has happened. Beside the commands of TestScript there are:
//
//	session PAGE N       run the page's N-th block of console: a "$ " before each command, and what
//	                     it prints, which is compared. A line "..." stands for any lines. A command
//	                     exits with 0, unless "echo $?" follows. What one block exports, the next has
//	crontab PAGE N FILE  make FILE a script that does what cron does with the N-th block of crontab
//	configured PAGE N    start a server with the settings of the N-th block of conf: it is n1
//	restart NODE         restart a server, which keeps what its settings have it keep
//
// In all of them 10.0.0.N:6379 is the N-th server.
func TestGuides(t *testing.T) {
	params := scripts("testdata/guide")
	maps.Copy(params.Cmds, map[string]func(*testscript.TestScript, bool, []string){
		"session": session, "crontab": crontab, "configured": configured, "restart": restart,
	})
	testscript.Run(t, params)
}

// Every block of a guide that shows the shell is run by a script.
func TestGuidesAreRun(t *testing.T) {
	pages, err := filepath.Glob(guides + "/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no guides: ", err)
	}
	files, err := filepath.Glob("testdata/guide/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts: ", err)
	}
	var lines []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(string(text), "\n")...)
	}
	for _, page := range pages {
		for language, command := range map[string]string{"console": "session", "crontab": "crontab", "conf": "configured"} {
			blocks, err := markdown.Blocks(page, language)
			if err != nil {
				continue // it has none
			}
			for i, b := range blocks {
				if want := fmt.Sprintf("%s %s %d", command, filepath.Base(page), i+1); !slices.ContainsFunc(lines, func(line string) bool {
					return line == want || strings.HasPrefix(line, want+" ")
				}) {
					t.Errorf("%v: no script in testdata/guide has %q", b, want)
				}
			}
		}
		if blocks, err := markdown.Blocks(page, "sh"); err == nil {
			t.Errorf("%v: nothing runs it; make it one of console", blocks[0])
		}
	}
}

// block is the block that the arguments of a command name.
func block(ts *testscript.TestScript, command, language string, args []string) markdown.Block {
	arguments(ts, args, 2, command+" PAGE N")
	blocks, err := markdown.Blocks(filepath.Join(guides, args[0]), language)
	ts.Check(err)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	if n < 1 || n > len(blocks) {
		ts.Fatalf("%s has %d blocks of %s", args[0], len(blocks), language)
	}
	return blocks[n-1]
}

// address is the N-th server's, with its port or without.
var address = regexp.MustCompile(`10\.0\.0\.(\d+)(:6379)?\b`)

// here has the servers of this script for those of a guide.
func here(ts *testscript.TestScript, text string) string {
	return address.ReplaceAllStringFunc(text, func(found string) string {
		return nodeOf(ts, "n"+address.FindStringSubmatch(found)[1]).proxy.Addr()
	})
}

// there is the reverse of here.
func there(ts *testscript.TestScript, text string) string {
	for name, n := range worldOf(ts).nodes {
		number := strings.TrimPrefix(name, "n")
		text = strings.NewReplacer(n.proxy.Addr(), "10.0.0."+number+":6379", n.server.Addr(), "10.0.0."+number+":6379").Replace(text)
	}
	return text
}

// typed is one command of a session, and what it prints.
type typed struct{ text, output string }

func commands(text string) (all []typed) {
	for line := range strings.Lines(text) {
		if line, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, typed{text: line})
		} else if len(all) > 0 {
			all[len(all)-1].output += line
		}
	}
	return all
}

// end is what the shell prints after each command, before its exit code.
const end = "@@end "

// session runs the commands in one shell and compares what they print.
func session(ts *testscript.TestScript, _ bool, args []string) {
	b := block(ts, "session", "console", args)
	all := commands(b.Text)
	var script strings.Builder
	script.WriteString("exec 2>&1\ntest ! -e .session || . ./.session\n")
	for _, c := range all {
		fmt.Fprintf(&script, "%scode=$?; printf '\\n%s%%d\\n' $code; (exit $code)\n", here(ts, c.text), end)
	}
	script.WriteString("export -p | grep REDLATCH_ >.session\n")
	file := ts.MkAbs("session.sh")
	ts.Check(os.WriteFile(file, []byte(script.String()), 0o666))
	ts.Check(ts.Exec("sh", file))
	printed := strings.Split(there(ts, ts.ReadFile("stdout")), "\n"+end)
	if len(printed) != len(all)+1 {
		ts.Fatalf("%v: the shell has ended after %d of %d commands", b, len(printed)-1, len(all))
	}
	for i, c := range all {
		output := printed[i]
		if i > 0 {
			_, output, _ = strings.Cut(output, "\n")
		}
		code, _, _ := strings.Cut(printed[i+1], "\n")
		if asked := i+1 < len(all) && strings.HasPrefix(all[i+1].text, "echo $?"); code != "0" && !asked {
			ts.Fatalf("%v: exit code %s: %s%s", b, code, c.text, output)
		}
		if !resembles(c.output, output) {
			ts.Fatalf("%v: $ %s\nprints\n%s\nand the guide shows\n%s", b, c.text, output, c.output)
		}
	}
}

// What is another each time, and what the guide and the run have for it.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`[+-]?\b(\d+(\.\d+)?(h|m|s|ms|µs|ns))+\b`), "<duration>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d( |T)\d\d:\d\d:\d\d(\.\d+)?Z?`), "<time>"},
	{regexp.MustCompile(`\b(redis|valkey) \d+(\.\d+)+`), "<server>"},
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "<run>"},
	{regexp.MustCompile(`\b\d{15,17}\b`), "<token>"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func masked(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	return strings.TrimSpace(text)
}

// resembles reports whether the output is what is shown: "..." on a line of its own stands for
// any lines.
func resembles(shown, output string) bool {
	var pattern strings.Builder
	for line := range strings.SplitSeq(masked(shown), "\n") {
		if strings.TrimSpace(line) == "..." {
			pattern.WriteString(`(.*\n)*`)
		} else {
			pattern.WriteString(regexp.QuoteMeta(strings.TrimSpace(line)) + "\n")
		}
	}
	var lines strings.Builder
	for line := range strings.SplitSeq(masked(output), "\n") {
		lines.WriteString(strings.TrimSpace(line) + "\n")
	}
	return regexp.MustCompile("^" + pattern.String() + "$").MatchString(lines.String())
}

func TestResembles(t *testing.T) {
	for _, tt := range []struct {
		shown, output string
		want          bool
	}{
		{"works\n", "works\n", true},
		{"works\n", "works not\n", false},
		{"", "", true},
		{"", "works\n", false},
		{"expires in 9.8s (1m3s), 12µs\n", "expires in 27ms (2h), 1.5ms\n", true},
		{"since 2026-11-23 10:00:00 by a\n", "since 2027-01-02 03:04:05 by b\n", false},
		{"A  B\n", "A      B\n", true},
		{"first\n...\nlast\n", "first\nlast\n", true},
		{"first\n...\nlast\n", "first\none\ntwo\nlast\n", true},
		{"first\n...\nlast\n", "first\none\nlast\nmore\n", false},
		{"a.c\n", "abc\n", false},
	} {
		if got := resembles(tt.shown, tt.output); got != tt.want {
			t.Errorf("%q and %q: %t", tt.shown, tt.output, got)
		}
	}
}

// entry is a line of a crontab that has a command: five fields are its times.
var entry = regexp.MustCompile(`^(?:\S+\s+){5}(.*)$`)

// crontab writes what cron runs: the settings as its environment, and sh -c of the command.
func crontab(ts *testscript.TestScript, _ bool, args []string) {
	arguments(ts, args, 3, "crontab PAGE N FILE")
	var script strings.Builder
	for line := range strings.Lines(block(ts, "crontab", "crontab", args).Text) {
		line = here(ts, strings.TrimSpace(line))
		name, value, setting := strings.Cut(line, "=")
		switch found := entry.FindStringSubmatch(line); {
		case line == "", strings.HasPrefix(line, "#"):
		case setting && !strings.ContainsAny(name, " \t*"):
			fmt.Fprintf(&script, "export %s=%s\n", name, shellQuote(value))
		case found != nil:
			fmt.Fprintf(&script, "exec sh -c %s\n", shellQuote(found[1]))
		default:
			ts.Fatalf("cron would not understand %q", line)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(script.String()), 0o666))
}

// configured starts a server with the settings of a guide. Where it listens and has its files is
// the test's.
func configured(ts *testscript.TestScript, _ bool, args []string) {
	var options redistest.Options
	for line := range strings.Lines(block(ts, "configured", "conf", args).Text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "", strings.HasPrefix(name, "#"):
		case name == "user":
			options.Users = append(options.Users, value)
		case value == `""`:
			options.Args = append(options.Args, "--"+name, "")
		default: // several words are one here, and refused by the server
			options.Args = append(options.Args, "--"+name, value)
		}
	}
	server, err := redistest.Start(context.Background(), options)
	ts.Check(err)
	proxy, err := redistest.StartProxy(server.Addr(), redistest.ProxyOptions{})
	ts.Check(err)
	worldOf(ts).add("n1", &node{server, proxy})
	ts.Setenv("n1", proxy.URL())
}

func restart(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		n := nodeOf(ts, name)
		ts.Check(n.server.Restart(context.Background()))
		n.proxy.Cut()
	}
}
