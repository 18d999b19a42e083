//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// process is a background command of a script.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it was waited for
}

// end kills it, if it still runs, and what it started, as far as that is found: a script
// that fails must not leave loops behind.
func (p *process) end() {
	select {
	case <-p.ended:
		return // its number may be another's
	default:
	}
	below, _ := descendants(p.cmd.Process.Pid)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	for _, pid := range below {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.ended
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "exits CODE CMD...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func startProcess(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "start PROC CMD...")
	path := args[1]
	if !strings.Contains(path, "/") {
		for dir := range strings.SplitSeq(ts.Getenv("PATH"), ":") {
			if candidate := dir + "/" + path; unix.Access(candidate, unix.X_OK) == nil {
				path = candidate
				break
			}
		}
	}
	cmd := exec.Command(path, args[2:]...)
	cmd.Args[0] = args[1]
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environmentOf(ts)
	stdout, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	defer stdout.Close()
	stderr, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	ts.Check(cmd.Start())
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // the status is in cmd.ProcessState
	}()
	worldOf(ts).processes[args[0]] = p
}

// environmentOf is the environment testscript gives to its own commands.
func environmentOf(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "WORK", "REDLATCH_NODES", "REDLATCH_NO_QUARANTINE", "REDLATCH_HELD", "REDLATCH_MAX_TTL", "REDLATCH_NODE_TIMEOUT", "GOCOVERDIR", "GORACE", "n1", "n2", "n3"} {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func ends(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "ends CODE PROC...")
	for _, name := range args[1:] {
		p, ok := worldOf(ts).processes[name]
		if !ok {
			ts.Fatalf("no process %q", name)
		}
		select {
		case <-p.ended:
		case <-time.After(limit):
			ts.Fatalf("%s runs still after %v", name, limit)
		}
		status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if got := fmt.Sprint(statusCode(status)); got != args[0] {
			ts.Fatalf("%s: exit code %s, want %s\n%s", name, got, args[0], readable(ts.MkAbs(name+".err")))
		}
	}
}

func died(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "died SIG PROC")
	status := worldOf(ts).processes[args[1]].cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || signalName(status.Signal()) != "SIG"+args[0] {
		ts.Fatalf("%s: %s, want SIG%s", args[1], describe(status), args[0])
	}
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "signal SIG PROC|FILE|FILE@")
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 {
		ts.Fatalf("no signal %q", args[0])
	}
	if p, ok := worldOf(ts).processes[args[1]]; ok {
		ts.Check(syscall.Kill(p.cmd.Process.Pid, sig))
		return
	}
	file, group := strings.CutSuffix(args[1], "@")
	for _, pid := range pidsIn(ts, file) {
		if group {
			pid = -pid
		}
		ts.Check(syscall.Kill(pid, sig))
	}
}

// descendants are the processes that root has started, directly or not, and that
// have not ended.
func descendants(root int) ([]int, error) {
	var pids []int
	err := walk(root, func(pid int) bool {
		if !hasEnded(pid) {
			pids = append(pids, pid)
		}
		return true
	})
	return pids, err
}

// hiddenProcess returns a script's command that writes the pid of one of the
// processes that watch over COMMAND.
func hiddenProcess(hidden string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		arguments(ts, args, 2, "guard-of|parent-of PROC FILE")
		p, ok := worldOf(ts).processes[args[0]]
		if !ok {
			ts.Fatalf("no process %q", args[0])
		}
		eventually(ts, args[0]+" has a "+hidden, func() bool {
			children, err := descendants(p.cmd.Process.Pid)
			ts.Check(err)
			for _, pid := range children {
				if strings.Contains(readable("/proc/"+strconv.Itoa(pid)+"/cmdline"), hidden) {
					ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strconv.Itoa(pid)), 0o666))
					return true
				}
			}
			return false
		})
	}
}

func pidsIn(ts *testscript.TestScript, file string) []int {
	var pids []int
	for word := range strings.FieldsSeq(ts.ReadFile(file)) {
		pid, err := strconv.Atoi(word)
		ts.Check(err)
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		ts.Fatalf("no pid in %s", file)
	}
	return pids
}

// runs reports whether pid is a process that has not ended. One that nobody
// waited for has.
func runs(pid int) bool {
	if !processExists(pid) {
		return false
	}
	threads, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	return state(pid) != "Z" || len(threads) > 1 // the state is that of the first thread
}

// state is that of proc_pid_stat(5), a letter.
func state(pid int) string {
	_, rest, _ := strings.Cut(readable("/proc/"+strconv.Itoa(pid)+"/stat"), ") ")
	letter, _, _ := strings.Cut(rest, " ")
	return letter
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 1, "await FILE [PATTERN]")
	pattern := regexp.MustCompile("\n") // a line that was written to its end
	if len(args) > 1 {
		pattern = regexp.MustCompile("(?m)" + args[1])
	}
	path := ts.MkAbs(args[0])
	eventually(ts, fmt.Sprintf("%s matches %s", args[0], pattern), func() bool { return pattern.MatchString(readable(path)) })
}

func awaitGone(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		for _, pid := range pidsIn(ts, file) {
			eventually(ts, fmt.Sprintf("the process %d of %s has ended", pid, file), func() bool { return !runs(pid) })
		}
	}
}

func awaitReaped(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		for _, pid := range pidsIn(ts, file) {
			eventually(ts, fmt.Sprintf("the process %d of %s was waited for", pid, file), func() bool { return !processExists(pid) })
		}
	}
}

func awaitStopped(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		for _, pid := range pidsIn(ts, file) {
			eventually(ts, fmt.Sprintf("the process %d of %s is stopped", pid, file), func() bool { return state(pid) == "T" })
		}
	}
}

func running(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		for _, pid := range pidsIn(ts, file) {
			if runs(pid) == neg {
				ts.Fatalf("the process %d of %s runs: %t", pid, file, neg)
			}
		}
	}
}
