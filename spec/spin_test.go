package spec

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Embedded, so that a changed model is never answered from the test cache.
//
//go:embed *.pml
var models embed.FS

// memorySmall is what a search may need if it does not say, in MB.
const memorySmall = 2048

// A search is one run of spin over one model.
type search struct {
	model   string   // its file, without .pml
	defines []string // sizes and switches
	depth   int      // the longest run of steps looked at; 0 is 1,000,000
	memory  int      // MB; 0 is memorySmall
	breadth bool     // breadth first: slower, and the first violation is the shortest
	slow    bool     // it takes several seconds: what the compiler can do for it is worth its time
	dir     string   // where it was built
}

// A finding is what a search came to.
type finding struct {
	states    int64
	depth     int
	megabytes float64
	cpu       time.Duration // of the search alone, without spin and the compiler
	errors    int
	violated  string   // the property that does not hold, "" if all do
	cut       string   // why the search did not look at everything, "" if it did
	unreached []string // statements that no state leads to
}

func (f finding) String() string {
	return fmt.Sprintf("%d states, %.2f s of CPU, %.0f MB, depth %d, errors %d", f.states, f.cpu.Seconds(), f.megabytes, f.depth, f.errors)
}

// needSpin skips the test in short mode and fails it where the tools are missing:
// a check that was left out must not look like one that passed.
func needSpin(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("the model is not checked in short mode")
	}
	for _, tool := range []string{"spin", "cc", "gcc"} { // spin calls gcc for its macros
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("checking the model needs %s: apt-get install spin gcc (or go test -short to leave it out)", tool)
		}
	}
}

// run builds the searcher in a directory of the test and runs it.
func (s *search) run(t *testing.T) finding {
	t.Helper()
	s.build(t)
	depth := s.depth
	if depth == 0 {
		depth = 1_000_000
	}
	args := []string{"-m" + strconv.Itoa(depth)}
	if s.memory <= memorySmall {
		args = append(args, "-w22") // a hash table of 32 MB, which takes a quarter of the time to set up that spin's own does
	}
	out, cpu := s.command(t, "./pan", args...)
	f, err := parse(out)
	if err != nil {
		t.Fatalf("%v; pan says:\n%s", err, out)
	}
	f.cpu = cpu
	return f
}

func (s *search) build(t *testing.T) {
	t.Helper()
	file := s.model + ".pml"
	text, err := models.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(s.dir, file), text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.command(t, "spin", append(s.switches(), "-a", file)...)
	if _, err := os.Stat(filepath.Join(s.dir, "pan.c")); err != nil {
		t.Fatalf("spin made no searcher: %v", err)
	}
	memory := s.memory
	if memory == 0 {
		memory = memorySmall
	}
	// gcc takes longer than most searches, even at -O0; tcc takes a twentieth of that. There is one process, so nothing
	// for partial order reduction to leave out; what the compiler thinks of spin's code is no concern here.
	compiler, level := "cc", "-O2"
	if !s.slow {
		level = "-O0"
		if _, err := exec.LookPath("tcc"); err == nil {
			compiler = "tcc"
		}
	}
	args := []string{level, "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=" + strconv.Itoa(memory)}
	if s.breadth {
		args = append(args, "-DBFS")
	}
	s.command(t, compiler, append(args, "-o", "pan", "pan.c")...)
}

// story replays the violation that a search found, a line for each step.
func (s *search) story(t *testing.T) string {
	t.Helper()
	out, _ := s.command(t, "spin", append(s.switches(), "-t", "-B", "-T", s.model+".pml")...)
	return out
}

func (s *search) switches() []string {
	var args []string
	for _, d := range s.defines {
		args = append(args, "-D"+d)
	}
	return args
}

// command runs one tool to its end in the search's directory and returns what
// it says and the processor time it took. The tool is stopped a moment before the test would time out, so that
// none is left behind.
func (s *search) command(t *testing.T, name string, args ...string) (string, time.Duration) {
	t.Helper()
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-5*time.Second))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.WaitDelay = time.Second // the compiler's children hold its output open when it is stopped
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %s: out of time; larger sizes need go test -timeout 2h", name, strings.Join(args, " "))
	}
	// spin and pan also exit with an error where they found one.
	_, exited := errors.AsType[*exec.ExitError](err)
	if err != nil && (!exited || name == "cc") {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

var (
	statesLine    = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	depthLine     = regexp.MustCompile(`(?m)depth reached (\d+), errors: (\d+)`)
	memoryLine    = regexp.MustCompile(`(?m)^\s*([\d.]+)\s+total actual memory usage`)
	violatedLine  = regexp.MustCompile(`(?m)^pan:\d+: (assertion violated \(?(\w+)\)?|.*)`)
	unreachedLine = regexp.MustCompile(`(?m)^\t\S+\.pml:(\d+), state \d+, "(.*)"`)
)

// cuts are the ways pan says that it has not looked at everything. That it
// stopped at a violation is not one of them.
var cuts = []string{"max search depth too small", "-DMEMLIM bound", "bytes limit", "out of memory", "hash table full", "Search not completed"}

// parse reads pan's report.
func parse(out string) (finding, error) {
	var f finding
	m := statesLine.FindStringSubmatch(out)
	d := depthLine.FindStringSubmatch(out)
	if m == nil || d == nil {
		return f, errors.New("the search has no result")
	}
	f.states, _ = strconv.ParseInt(m[1], 10, 64)
	f.depth, _ = strconv.Atoi(d[1])
	f.errors, _ = strconv.Atoi(d[2])
	if m := memoryLine.FindStringSubmatch(out); m != nil {
		f.megabytes, _ = strconv.ParseFloat(m[1], 64)
	}
	if f.errors > 0 {
		f.violated = "something that is no property"
		if m := violatedLine.FindStringSubmatch(out); m != nil {
			f.violated = m[1]
			if m[2] != "" {
				f.violated = m[2]
			}
		}
		return f, nil
	}
	for _, cut := range cuts {
		if strings.Contains(out, cut) {
			f.cut = cut
			break
		}
	}
	for _, m := range unreachedLine.FindAllStringSubmatch(out, -1) {
		if m[2] != "-end-" {
			f.unreached = append(f.unreached, "line "+m[1]+": "+m[2])
		}
	}
	return f, nil
}
