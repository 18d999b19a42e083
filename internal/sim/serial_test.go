package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// The same seed gives the same history, to the nanosecond and in the same order, on one processor and
// with a Go runtime that leaves nothing to chance or to the real clock. Go's own does on purpose, and no
// setting turns it off: it draws which of several ready cases a select takes, which of several timers
// of one instant fires first, and where an iteration over a map begins; it stops a goroutine that has run
// for 10 ms; and each 61st time it lets one go first that had yielded. So tests are built anew, as for the
// breaches, with these places changed: all that is drawn in a bubble comes from one stream of the bubble's
// own, and of two goroutines that are ready a draw says which runs first. Nor is there a garbage collection
// while a world lives, which has those who allocate stand aside; and a world makes no system calls, from
// which a goroutine may return behind others: the clocks that the library reads are the world's.

// runtimeDraw is a file more in package runtime.
const runtimeDraw = `package runtime

// draw returns the bubble's next random number; outside of one, any.
func (bubble *synctestBubble) draw() uint64 {
	if bubble != nil {
		bubble.drawn += 0x9e3779b97f4a7c15
	}
	return bubble.look()
}

// look returns the last again, for maps, of which a process keeps some from one world to the next.
func (bubble *synctestBubble) look() uint64 {
	if bubble == nil {
		return rand()
	}
	z := bubble.drawn
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
`

// runtimeChanges are what is changed of it.
var runtimeChanges = []change{
	{"synctest.go", "	id      uint64 // unique id\n", "	id      uint64 // unique id\n	drawn   uint64 // by draw\n"},
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := uint32(gp.bubble.draw() % uint64(norder+1))"},
	{"time.go", "t.rand = cheaprand()", "t.rand = uint32(getg().bubble.draw())"},
	{"rand.go", "func maps_rand() uint64 {\n	return rand()", "func maps_rand() uint64 {\n	return getg().bubble.look()"},
	{"rand.go", "seed[i%len(seed)] ^= c", "seed[i%len(seed)] ^= c & 0"}, // by which maps hash
	{"proc.go", "const forcePreemptNS = 10 * 1000 * 1000 ", "const forcePreemptNS = 1000 * 1000 * 1000 * 1000 "},
	{"proc.go", "if randomizeScheduler && next && randn(2) == 0 {", "if next && gp.bubble != nil && gp.bubble.draw()%2 == 0 {"},
	{"proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if false {"},
}

// runtimeTexts returns the changed files of Go's runtime.
func runtimeTexts() (texts map[string]string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "src", "runtime")
	texts = map[string]string{filepath.Join(dir, "draw.go"): runtimeDraw}
	for _, c := range runtimeChanges {
		name := filepath.Join(dir, c.file)
		text, ok := texts[name]
		if !ok {
			source, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			text = string(source)
		}
		if n := strings.Count(text, c.was); n != 1 {
			return nil, fmt.Errorf("%q occurs %d times in runtime/%s of %s: Go's runtime has changed, and what is changed of it must follow", c.was, n, c.file, runtime.Version())
		}
		texts[name] = strings.Replace(text, c.was, c.now, 1)
	}
	return texts, nil
}

// What is changed of Go's runtime is there. Until it is again, worlds run with the runtime as it is, and
// hardly twice in the same way.
func TestRuntimeFits(t *testing.T) {
	if _, err := runtimeTexts(); err != nil {
		t.Error(err)
	}
}

// builds is where this process keeps the test that it built to run worlds in.
var builds struct {
	mu     sync.Mutex // guards what follows, and is held while the test is built: others wait for that
	dir    string
	binary string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := found.write(); err != nil {
		fmt.Println(err)
		code = 1
	}
	if builds.dir != "" {
		os.RemoveAll(builds.dir)
	}
	os.Exit(code)
}

// serialBuild returns this test, built so that its worlds are exact.
func serialBuild(t *testing.T) (binary string) {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	if builds.binary == "" {
		dir, err := os.MkdirTemp("", "redlatch-sim-")
		if err != nil {
			t.Fatal(err)
		}
		builds.dir = dir
		builds.binary = buildOver(t, dir, filepath.Join("..", ".."), nil)
	}
	return builds.binary
}

// buildOver builds this test into dir with these texts in place of the files under root, and with the
// changed runtime, and returns the file.
func buildOver(t *testing.T, dir, root string, texts map[string]string) string {
	t.Helper()
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	replace := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d-%s", len(overlay.Replace), filepath.Base(path)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = file
	}
	for name, text := range texts {
		replace(filepath.Join(root, name), text)
	}
	changed, err := runtimeTexts()
	if err != nil {
		t.Log(err)
	}
	for path, text := range changed {
		replace(path, text)
	}
	config, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "built.test")
	if err := os.WriteFile(overlayFile, config, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+overlayFile, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// isHere reports whether a test that asks for exact worlds has to do with those of this process: it is
// one that was started for them, or they are not to be had, as under the race detector, which has goroutines
// run in an order of its own, and where there is no time to build.
func isHere() bool { return *simSerial || testing.Short() || simWorlds < 1000 }

// serially runs the calling test in a process whose worlds are exact, unless it is to run in this one,
// which it reports.
func serially(t *testing.T) (here bool) {
	t.Helper()
	if isHere() {
		return true
	}
	out, err := (&worlds{binary: serialBuild(t), test: t.Name()}).run(t, func(string) {})
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// worlds is a process that runs worlds, one after the other.
type worlds struct {
	binary, test string
	args, env    []string

	used time.Duration // of processors
}

// run runs the process with the arguments that this one was given for worlds, and its own, and returns
// what it says; that a script was changed to what does not compile is an error. told is called with each line at once.
func (p *worlds) run(t *testing.T, told func(line string)) (out string, err error) {
	t.Helper()
	args := []string{"-test.run=^" + p.test + "$", "-test.v"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprint("-test.timeout=", time.Until(deadline)))
	} else {
		args = append(args, "-test.timeout=0")
	}
	flag.Visit(func(f *flag.Flag) {
		if strings.HasPrefix(f.Name, "sim.") {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := exec.CommandContext(ctx, p.binary, append(append(args, p.args...), "-sim.serial")...)
	// There is time for garbage between two worlds, and the limit is for one that has no end.
	c.Env = append(append(os.Environ(), p.env...), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=4GiB")
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	var b strings.Builder
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadString('\n')
		b.WriteString(line)
		if line != "" {
			told(line)
		}
		if err != nil {
			break
		}
	}
	err = c.Wait()
	p.used = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	if out = b.String(); strings.Contains(out, "Error compiling script") { // which shows nothing about the rule that it breaks
		return "", fmt.Errorf("a script does not compile:\n%s", out)
	}
	return out, err
}

// garbage is how much of it there may be between two worlds.
const garbage = 64 << 20

// clean collects the garbage of the worlds before, where none is collected while one lives.
func clean() {
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); *simSerial && m.HeapAlloc > garbage {
		runtime.GC()
	}
}

// A seed is of use only if it leads to the same world again: to the same history, after other worlds and
// in another process.
func TestSimReplays(t *testing.T) {
	if isHere() {
		t.Skip("worlds are exact in processes that are started for them alone")
	}
	binary := serialBuild(t)
	for test, count := range map[string]int{"TestSim": 60, "TestSimCluster": 6} {
		t.Run(test, func(t *testing.T) { replays(t, binary, test, count) })
	}
}

// replays runs worlds of the test twice, the last first the second time.
func replays(t *testing.T, binary, test string, count int) {
	const first = 1
	dirs := [2]string{t.TempDir(), t.TempDir()}
	t.Run("twice", func(t *testing.T) {
		for i, order := range []string{fmt.Sprintf("-sim.first=%d -sim.step=1", first), fmt.Sprintf("-sim.first=%d -sim.step=-1", first+count-1)} {
			t.Run("process", func(t *testing.T) {
				t.Parallel()
				p := worlds{binary: binary, test: test, args: append(strings.Fields(order), fmt.Sprint("-sim.count=", count), "-sim.histories="+dirs[i])}
				if out, err := p.run(t, func(string) {}); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	})
	same := 0
	for seed := uint64(first); seed < uint64(first+count); seed++ {
		one, err := os.ReadFile(historyFile(dirs[0], seed))
		other, err2 := os.ReadFile(historyFile(dirs[1], seed))
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
			continue
		}
		if string(one) == string(other) {
			same++
			continue
		}
		a, b := parting(string(one), string(other))
		t.Errorf("world %d is another each time. It begins with\n%s\nin place of\n%s", seed, a, b)
	}
	t.Logf("%d of %d worlds were the same twice", same, count)
}

// historyFile is where a world's history is written.
func historyFile(dir string, seed uint64) string { return filepath.Join(dir, fmt.Sprint(seed, ".txt")) }

// parting returns the first lines in which two texts differ.
func parting(a, b string) (inA, inB string) {
	ofA, ofB := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(ofA), len(ofB)) {
		if ofA[i] != ofB[i] {
			return ofA[i], ofB[i]
		}
	}
	return fmt.Sprintf("%d lines", len(ofA)), fmt.Sprintf("%d lines", len(ofB))
}
