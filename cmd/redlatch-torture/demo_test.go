//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
)

// demoRun is a process of `redlatch-torture demo` that a test has started.
type demoRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	temp   string    // the process's directory for temporary files
	pipe   io.Closer // the end of stdout that the test reads
	stdout *bufio.Reader
	stderr strings.Builder
	seen   strings.Builder // what the test has read from stdout so far
	// processes has the ids of all children of the process that were seen.
	processes map[int]bool
}

// startDemo starts the real program, which gets its own directory for temporary files.
func startDemo(t *testing.T, env []string, args ...string) *demoRun {
	t.Helper()
	program, err := exec.LookPath("redlatch-torture") // put there by testscript.Main
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: the path of a socket or of a log in it might be too long.
	temp, err := os.MkdirTemp("", "demo-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	d := &demoRun{t: t, temp: temp, processes: map[int]bool{}}
	d.cmd = exec.Command(program, append([]string{"demo"}, args...)...)
	d.cmd.Env = append(append(os.Environ(), "TMPDIR="+temp), env...)
	d.cmd.Stderr = &d.stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.pipe, d.stdout = out, bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(limit, func() { d.cmd.Process.Kill() })
	t.Cleanup(func() { hang.Stop() })
	return d
}

// awaitLine reads stdout up to a line that matches pattern, and notes the children of the process.
func (d *demoRun) awaitLine(pattern string) {
	d.t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		line, err := d.stdout.ReadString('\n')
		d.seen.WriteString(line)
		if err != nil {
			d.t.Fatalf("no line matches %q: %v\n%s%s", pattern, err, &d.seen, &d.stderr)
		}
		d.noteProcesses()
		if re.MatchString(line) {
			return
		}
	}
}

// ends reads stdout to its end, and checks the exit code.
func (d *demoRun) ends(code int) {
	d.t.Helper()
	rest, err := io.ReadAll(d.stdout)
	d.seen.Write(rest)
	if err != nil && !errors.Is(err, os.ErrClosed) {
		d.t.Fatal(err)
	}
	err = d.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		d.t.Fatal(err)
	} else if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("exit code %d (%v), want %d; it said:\n%s%s", got, exit, code, &d.seen, &d.stderr)
	}
}

// saw checks that each pattern matches what was read from stdout.
func (d *demoRun) saw(patterns ...string) {
	d.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(`(?m)` + p).MatchString(d.seen.String()) {
			d.t.Errorf("nothing matches %q in:\n%s%s", p, &d.seen, &d.stderr)
		}
	}
}

// leftNothing checks that all children and all temporary files are gone.
func (d *demoRun) leftNothing() {
	d.t.Helper()
	if runtime.GOOS == "linux" && len(d.processes) < 5 {
		d.t.Errorf("only %d processes were seen: %v", len(d.processes), d.processes)
	}
	for pid := range d.processes {
		if processRuns(pid) {
			d.t.Errorf("process %d is left behind", pid)
		}
	}
	files, err := filepath.Glob(filepath.Join(d.temp, "*"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range files {
		// All programs reserve the ports of servers in one file, which nobody removes.
		if !strings.HasSuffix(name, ".lock") {
			d.t.Errorf("%s is left behind", name)
		}
	}
}

// noteProcesses looks for children of the process in /proc.
func (d *demoRun) noteProcesses() {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		if _, parent := processState(name); parent == d.cmd.Process.Pid {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			d.processes[pid] = true
		}
	}
}

// processRuns reports whether the process runs. A zombie does not run: it has ended, and its
// new parent has not waited for it yet.
func processRuns(pid int) bool {
	if runtime.GOOS != "linux" {
		return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	state, _ := processState(fmt.Sprintf("/proc/%d/stat", pid))
	return state != "" && state != "Z"
}

// processState reads the state and the parent of a process from its file stat (proc_pid_stat(5)).
func processState(name string) (state string, parent int) {
	stat, err := os.ReadFile(name)
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// clean matches the summary of a run in which nothing was violated.
const clean = `(?s)overlaps +0\n  lost updates +0 \((\d+) made, the record counts (\d+)\)\n  tokens out of order +0\n`

// The demo runs on real servers and on embedded ones, and finds no violation.
func TestDemo(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		kind string
	}{
		"real":     {nil, `^nodes: (redis|valkey)-server \d`},
		"embedded": {[]string{"--embedded"}, `^nodes: embedded servers \(miniredis, pure Go\): as asked for`},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDemo(t, nil, append(tt.args, "--for", "4s", "--workers", "3")...)
			d.awaitLine(`not admitted, it may have forgotten locks: can vote in`)
			d.awaitLine(`^measured`)
			d.ends(0)
			d.saw(tt.kind, `^  acquisitions +[1-9]\d* in 4\.\d s, by worker: \d+ \d+ \d+$`, `[1-9]\d* of them with 2 of 5 nodes out`,
				clean, `longest wait +\d`, `node 2: killed`, `node 4: hung \(SIGSTOP\)`, `node 4: votes again`,
				`^  node 2 +not admitted +killed at .* back empty at .*, kept out .* more$`, `^nothing was violated$`)
			// Both the workers' reports and the record count the updates.
			counts := regexp.MustCompile(clean).FindStringSubmatch(d.seen.String())
			if counts != nil && (counts[1] != counts[2] || counts[1] == "0") {
				t.Errorf("%s updates were made, the record counts %s", counts[1], counts[2])
			}
			d.leftNothing()
		})
	}
}

// The demo runs on the three members of a cluster of etcd, which come back with their data.
func TestDemoOfEngine(t *testing.T) {
	if err := engine.Etcd.Missing(); err != nil {
		t.Skip(err)
	}
	d := startDemo(t, nil, "--engine", "etcd", "--for", "60s", "--workers", "2")
	d.awaitLine(`node 2: back, with its data`)
	d.awaitLine(`node 2: votes again`) // after an election, however long that takes
	d.awaitLine(`[1-9]\d* acquisitions, 0 overlaps`)
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	d.ends(130)
	d.saw(`^nodes: etcd \d.*, a cluster of 3 members; node 2 leads$`, clean, `^  node 2 .*killed at .* back with its data at .* voted again at`)
	d.leftNothing()
}

// Where no server is installed, the demo uses embedded ones.
func TestDemoWithoutServers(t *testing.T) {
	d := startDemo(t, []string{"REDISTEST_SERVERS=no-such-server"}, "--for", "2s", "--workers", "2", "--nodes-count", "3")
	d.awaitLine(`^nodes: embedded servers .* no redis-server or valkey-server found in PATH`)
	d.awaitLine(`^measured`)
	d.ends(0)
	d.saw(clean, `^  node 2 .*killed at`)
}

// The demo reports violations of workers that do not use the lock.
func TestDemoJudges(t *testing.T) {
	d := startDemo(t, nil, "--for", "2s", "--no-lock")
	d.awaitLine(`^measured`)
	d.ends(1)
	d.saw(`^VIOLATED$`, `^  \d+ overlaps, the first: worker \d found`, `^  [1-9]\d* lost updates: \d+ were made, the record counts \d+$`)
	d.leftNothing()
}

// Ctrl-C ends the demo at once and in order while one node is killed and another one hangs.
func TestDemoInterrupted(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(sig.String(), func(t *testing.T) {
			d := startDemo(t, nil, "--for", "60s")
			d.awaitLine(`node 4: hung`)
			if err := d.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			d.ends(code)
			d.saw(clean, `^  node 4 +out +hung at .* not brought back before the end$`, `^interrupted; nothing was violated so far$`)
			d.leftNothing()
		})
	}
}

// When the demo is killed, all its processes end, even those that hang.
func TestDemoKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	d := startDemo(t, nil, "--for", "60s", "--embedded")
	d.awaitLine(`node 4: hung`)
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait() // it was killed
	if len(d.processes) < 5 {
		t.Errorf("only %d processes were seen", len(d.processes))
	}
	deadline := time.Now().Add(limit)
	for pid := range d.processes {
		for processRuns(pid) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if processRuns(pid) {
			t.Errorf("process %d is left behind", pid)
		}
	}
}

// The demo ends in order when the reader of its output goes away.
func TestDemoUnread(t *testing.T) {
	d := startDemo(t, nil, "--for", "60s")
	d.awaitLine(`node 2: killed`)
	if err := d.pipe.Close(); err != nil {
		t.Fatal(err)
	}
	d.ends(exitSystem)
	d.leftNothing()
}

func TestDemoUsage(t *testing.T) {
	for _, args := range [][]string{{"--for", "1s"}, {"--workers", "1"}, {"--nodes-count", "2"}, {"--engine", "mysql"}, {"--nodes-count", "5", "--engine", "etcd"}, {"--embedded", "--engine", "zookeeper"}} {
		d := startDemo(t, nil, args...)
		d.ends(exitUsage)
		if said := d.stderr.String(); !strings.Contains(said, "redlatch-torture: ") || !strings.Contains(said, args[0]) {
			t.Errorf("%v: it says %q", args, said)
		}
	}
}
