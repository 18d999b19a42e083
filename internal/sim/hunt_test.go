package sim_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// hunt is a search for a world that notices what is broken.
type hunt struct {
	binary, name      string
	where             string // the test that has the worlds, "" for TestSim
	mutation, weather string
	env               []string // what else breaks it
	permits           bool     // most calls are for permits
	anywhere          bool     // goroutines stand still at any statement
	within            int      // worlds
}

// hunters bounds how many processes hunt at a time.
var hunters = make(chan struct{}, runtime.GOMAXPROCS(0))

// finding is what a process says first that has found something; elsewhere, in a test that is not TestSim.
var (
	finding   = regexp.MustCompile(`seed (\d+): ([^:\n]*)`)
	elsewhere = regexp.MustCompile(`(?:seed|world) (\d+)[:,] ([^\n]*)`)
)

// run returns a world that notices, and what its judge says first: the one that is known to, else
// the first. err is nil if none does.
func (h *hunt) run(t *testing.T) (world uint64, verdict, out string, err error) {
	t.Helper()
	hunters <- struct{}{}
	defer func() { <-hunters }()
	// A world that notices keeps its history in a file, which nobody is to read here.
	env := append(slices.Clone(h.env), "TMPDIR="+t.TempDir())
	known, finding := "-sim.first=%d -sim.count=1", finding
	if h.where != "" {
		known, finding = "-sim.seed=%d", elsewhere // not each of them begins where it is told to
	}
	look := func(args string) {
		p := worlds{binary: h.binary, test: cmp.Or(h.where, "TestSim"), env: env, args: append(strings.Fields(args),
			"-sim.fail=1", "-sim.weather="+h.weather, "-sim.mutation="+h.mutation, fmt.Sprint("-sim.anywhere=", h.anywhere))}
		if h.permits {
			p.args = append(p.args, "-sim.permits=65")
		}
		out, err = p.run(t, func(string) {})
		if match := finding.FindStringSubmatch(out); match != nil && err != nil {
			world, _ = strconv.ParseUint(match[1], 10, 64)
			verdict = match[2]
		}
	}
	if seed := found.of(t)[h.name]; seed > 0 {
		look(fmt.Sprintf(known, seed))
	}
	if verdict == "" {
		look(fmt.Sprint("-sim.first=1 -sim.count=", h.within))
		found.keep(h.name, world)
	}
	return world, verdict, out, err
}

// finds are worlds that have noticed what is broken, by its name: so they are asked first. A change of
// the library makes other worlds of them; where one does not notice any more others are looked for.
type finds struct {
	mu     sync.Mutex // guards what follows
	worlds map[string]uint64
	others bool // than in the file
}

var found finds

// foundFile has them, and is written by -sim.keep.
var foundFile = filepath.Join("testdata", "found.txt")

// of returns them.
func (f *finds) of(t *testing.T) map[string]uint64 {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.worlds == nil {
		f.worlds = make(map[string]uint64)
		text, err := os.ReadFile(foundFile)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			seed, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.ParseUint(seed, 10, 64)
			if err != nil {
				t.Errorf("%s: %v", foundFile, err)
			}
			f.worlds[name] = n
		}
	}
	return maps.Clone(f.worlds)
}

// keep notes a world, if there is one.
func (f *finds) keep(name string, world uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if world > 0 {
		f.worlds[name], f.others = world, true
	}
}

// write writes them to their file, where that was asked for.
func (f *finds) write() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.others || !*simKeep {
		return nil
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.worlds)) {
		fmt.Fprintln(&b, f.worlds[name], name)
	}
	return os.WriteFile(foundFile, []byte(b.String()), 0o644)
}
