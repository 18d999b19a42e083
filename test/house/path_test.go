package house

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/script"
)

// guide says in which order the core is read, and which way a call takes through it.
const guide = "internal/README.md"

// traced is a connection to a server that grants everything, and notes by which calls a step
// came to it.
type traced struct {
	run  string
	note func(step string)
	// held is how many acquire steps are answered with another's holder id.
	held int
	mu   sync.Mutex // guards held
}

func (c *traced) Do(_ context.Context, args ...string) (driver.Reply, error) {
	text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
	if args[0] != "EVAL" || args[1] != script.Inspect.Text {
		return text("PONG"), nil
	}
	info := "run_id:" + c.run + "\r\nmaster_replid:" + c.run + "\r\nrole:master\r\nredis_version:7.0.0\r\n"
	return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text(info), text(""), text(""), text(""), text("1")}}, nil
}

func (c *traced) EvalSHA(_ context.Context, sha string, _, args []string) (driver.Reply, error) {
	step := args[0]
	if sha == script.Releasing.SHA {
		step = "release"
	}
	c.note(step)
	number := func(n int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: n} }
	text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case step == script.Acquire && c.held > 0:
		c.held--
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("another"), number(1000)}}, nil
	case step == script.Enqueue: // the key is free, and this process the first
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{number(0), text("1"), text(""), number(500), text("")}}, nil
	}
	return number(7), nil
}

func (c *traced) Connections() uint64 { return 1 }
func (c *traced) Close()              {}

// standing is a clock that stands still: nobody is too late, however busy the machine is.
type standing struct{ at time.Time }

func (c standing) Now() clock.Instant                          { return clock.Instant{Mono: c.at} }
func (c standing) Mono() time.Time                             { return c.at }
func (c standing) Wall() time.Time                             { return c.at }
func (c standing) AfterFunc(time.Duration, func()) clock.Timer { return never{} }

type never struct{}

func (never) Stop() bool               { return true }
func (never) Reset(time.Duration) bool { return true }

// What the compiler adds to a function's name: a function literal is its function's.
var (
	literal = regexp.MustCompile(`\.(func\d+|gowrap\d+|deferwrap\d+|\d+)(\.|$).*`)
	method  = regexp.MustCompile(`^([^.]+)\..*(\(\*\w+\)\.\w+)$`)
)

// spots are the functions of this project among those of a stack, from the outermost to the
// innermost.
func spots(functions []string) (calls []string) {
	for _, name := range slices.Backward(functions) {
		if !strings.HasPrefix(name, module) || strings.HasPrefix(name, module+"/test/") {
			continue
		}
		name = literal.ReplaceAllString(path.Base(name), "")
		name = method.ReplaceAllString(name, "$1.$2") // where one was compiled into another
		if len(calls) == 0 || calls[len(calls)-1] != name {
			calls = append(calls, name)
		}
	}
	return calls
}

// stack are the functions that led to the caller.
func stack() (functions []string) {
	pcs := make([]uintptr, 128)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		functions = append(functions, frame.Function)
		if !more {
			return functions
		}
	}
}

// otherStack are the functions that led a goroutine from one to where it waits in another. It
// waits until there is such a goroutine; nil, if there is none.
func otherStack(from, in string) (functions []string) {
	room := make([]byte, 1<<20)
	for range 10_000 {
		time.Sleep(time.Millisecond)
		for goroutine := range strings.SplitSeq(string(room[:runtime.Stack(room, true)]), "\n\n") {
			state, calls, _ := strings.Cut(goroutine, "\n")
			functions = nil
			for line := range strings.Lines(calls) {
				if i := strings.LastIndexByte(line, '('); i > 0 && !strings.HasPrefix(line, "\t") {
					functions = append(functions, line[:i])
				}
			}
			if all := spots(functions); strings.Contains(state, "[select") && len(all) > 0 && all[0] == from && all[len(all)-1] == in {
				return functions
			}
		}
	}
	return nil
}

// trace locks on so many nodes, and returns the ways of the first of each step, and of the
// caller where a worker took the acquire step.
func trace(t *testing.T, nodes, held int) map[string][]string {
	t.Helper()
	ways := make(map[string][]string)
	var mu sync.Mutex // guards ways
	var caller sync.Once
	note := func(step string) {
		way := spots(stack())
		mu.Lock()
		if ways[step] == nil {
			ways[step] = way
		}
		mu.Unlock()
		if step == script.Acquire && way[0] != "redlatch.(*Client).Lock" {
			// No node answers before: then the caller would go on.
			caller.Do(func() {
				way := spots(otherStack("redlatch.(*Client).Lock", "quorum.(*keys).acquire"))
				mu.Lock()
				ways["caller"] = way
				mu.Unlock()
			})
		}
	}
	config := redlatch.Config{NodeTimeout: time.Second}
	for i := range nodes {
		config.Nodes = append(config.Nodes, fmt.Sprintf("redis://10.0.0.%d:6379", i+1))
	}
	opened, err := hook.Open(config, hook.Surroundings{Clock: standing{time.Now()}, Dial: func(name string) (driver.Conn, error) {
		return &traced{run: strings.Repeat(strconv.Itoa(len(name)), 20) + fmt.Sprintf("%20s", strings.Trim(name, ":6379")), note: note, held: held}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	client := opened.(*redlatch.Client)
	lock, err := client.Lock(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	return ways
}

// block returns the first words of the lines of the code block below the heading.
func block(t *testing.T, page, heading string) (words []string) {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n### "+heading+"\n")
	_, rest, begun := strings.Cut(rest, "\n```\n")
	text, _, ended := strings.Cut(rest, "\n```\n")
	if !found || !begun || !ended {
		t.Fatalf("%s has no list below %q", guide, heading)
	}
	for line := range strings.Lines(text) {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}

func readGuide(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, guide))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The ways through the core are those that internal/README.md lists.
func TestPathOfALock(t *testing.T) {
	page := readGuide(t)
	one, three, waiting := trace(t, 1, 0), trace(t, 3, 0), trace(t, 1, 1)
	for _, tt := range []struct {
		heading string
		way     []string
	}{
		{"On one node", one[script.Acquire]},
		{"On three nodes: the caller", three["caller"]},
		{"On three nodes: a worker, for each node", three[script.Acquire]},
		{"Held by another: into the wait queue", waiting[script.Enqueue]},
		{"Unlock, on one node", one["release"]},
	} {
		if listed := block(t, page, tt.heading); !slices.Equal(listed, tt.way) {
			t.Errorf("%s: listed are\n%s\nand it goes\n%s", tt.heading, strings.Join(listed, "\n"), strings.Join(tt.way, "\n"))
		}
	}
}

// What the way back comes through is there.
func TestPathBack(t *testing.T) {
	known := make(map[string]bool)
	for _, folder := range []string{".", "internal/quorum", "internal/node", "internal/waitqueue", "internal/vote", "internal/admission"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, declaration := range parsed.Decls {
				f, ok := declaration.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := f.Name.Name
				if f.Recv != nil {
					if pointer, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
						name = "(*" + types.ExprString(pointer.X) + ")." + name
					}
				}
				known[parsed.Name.Name+"."+name] = true
			}
		}
	}
	page := readGuide(t)
	for _, heading := range []string{"The answer comes back", "Woken up"} {
		for _, name := range block(t, page, heading) {
			if !known[name] {
				t.Errorf("%s: there is no %s", heading, name)
			}
		}
	}
}

// A file is as long as internal/README.md says, within a tenth.
func TestReadingOrder(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| \\d+ \\| `([^`]+)` \\| (\\d+) \\|")
	rows := row.FindAllStringSubmatch(readGuide(t), -1)
	if len(rows) < 10 {
		t.Fatalf("%s lists %d files", guide, len(rows))
	}
	sum := 0
	for _, found := range rows {
		text, err := os.ReadFile(filepath.Join(root, found[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		said, lines := number(t, found[2]), strings.Count(string(text), "\n")
		sum += said
		if off := lines - said; 10*max(off, -off) > lines {
			t.Errorf("%s has %d lines, not %d", found[1], lines, said)
		}
	}
	total := regexp.MustCompile(`about ([\d,]+) lines`).FindStringSubmatch(readGuide(t))
	if total == nil {
		t.Fatal("the guide does not say how many lines there are")
	}
	if said := number(t, strings.ReplaceAll(total[1], ",", "")); 10*max(said-sum, sum-said) > sum {
		t.Errorf("%d lines are listed, and it says about %d", sum, said)
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSpots(t *testing.T) {
	got := spots([]string{
		module + "/test/house.(*traced).EvalSHA",
		module + "/internal/node.(*Node).vote.func1",
		module + "/internal/node.(*Node).vote",
		module + "/internal/quorum.(*Lease).ask.(*workers).run.func2",
		module + "/internal/waitqueue.New.func1.2",
		"sync.(*WaitGroup).Go.func1",
		module + ".(*Client).Lock",
		module + "/test/house.trace",
	})
	want := []string{"redlatch.(*Client).Lock", "waitqueue.New", "quorum.(*workers).run", "node.(*Node).vote"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
