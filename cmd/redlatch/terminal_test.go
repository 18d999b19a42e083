//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/redlatch/redlatch/internal/redistest"
)

// keyboard is a program on a terminal of its own.
type keyboard struct {
	t      *testing.T
	server *redistest.Server
	cmd    *exec.Cmd
	tty    *os.File
	seen   string
	all    string
	text   chan string // what it prints; closed at its end
}

// onTerminal starts a program as the leader of a session on a new terminal,
// with a server.
func onTerminal(t *testing.T, name string, args ...string) *keyboard {
	t.Helper()
	server := redistest.New(t)
	cmd := exec.Command(name, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "REDLATCH_NODES="+redistest.URLs([]*redistest.Server{server})[0], "REDLATCH_NO_QUARANTINE=true", "PS1=$ ", "TERM=dumb")
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	k := &keyboard{t: t, server: server, cmd: cmd, tty: tty, text: make(chan string)}
	go func() {
		defer close(k.text)
		for buf := make([]byte, 4096); ; {
			n, err := tty.Read(buf)
			if n > 0 {
				k.text <- string(buf[:n])
			}
			if err != nil {
				return // EIO, when the last process has closed the terminal
			}
		}
	}()
	t.Cleanup(func() {
		// The terminal ends when nobody has it open any more.
		left, _ := descendants(cmd.Process.Pid)
		for _, pid := range append(left, cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for range k.text {
		}
		tty.Close()
		_ = cmd.Wait()
	})
	return k
}

// keys types.
func (k *keyboard) keys(text string) {
	k.t.Helper()
	if _, err := io.WriteString(k.tty, text); err != nil {
		k.t.Fatal(err)
	}
}

// sees waits for what is printed next to match, and drops it up to there.
func (k *keyboard) sees(pattern string) {
	k.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.After(limit); ; {
		if at := re.FindStringIndex(k.seen); at != nil {
			k.seen = k.seen[at[1]:]
			return
		}
		select {
		case text, ok := <-k.text:
			if !ok {
				k.t.Fatalf("it ended, and did not print %q: %q", pattern, k.seen)
			}
			text = strings.ReplaceAll(text, "\r\n", "\n")
			k.seen, k.all = k.seen+text, k.all+text
		case <-deadline:
			k.t.Fatalf("after %v it has not printed %q, but %q", limit, pattern, k.seen)
		}
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// probe is a COMMAND that tells what it sees of its terminal. It never forks: a
// shell that is stopped while it starts a program hangs in vfork(2), with or
// without us.
//
//	probe front  wait until its group is in the foreground
//	probe where  tell whether it is
//	probe stop   say when it was continued, and whether it is in front then
func probe() {
	where := func() string {
		group, err := unix.IoctlGetInt(2, unix.TIOCGPGRP)
		if err == nil && group == syscall.Getpgrp() {
			return "in front"
		}
		return "in back"
	}
	switch os.Args[1] {
	case "front":
		for where() != "in front" {
			time.Sleep(time.Millisecond)
		}
	case "stop":
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		fmt.Println("ready")
		<-continued
		fmt.Println("continued")
	}
	fmt.Println(where())
}

// COMMAND reads the keyboard, and whoever started us has it back afterwards.
func TestForeground(t *testing.T) {
	k := onTerminal(t, "sh", "-c", "redlatch run job -- sh -c 'probe front; read line; echo got $line'; echo then; probe where")
	k.sees("in front\n")
	k.keys("some words\n")
	k.sees("got some words\n")
	k.sees("then\nin front\n")
}

// Ctrl-C reaches COMMAND, which decides what it means.
func TestInterruptKey(t *testing.T) {
	k := onTerminal(t, "sh", "-c", "trap : INT; redlatch run job -- sh -c 'trap \"echo caught; exit 4\" INT; echo ready; while :; do sleep 0.01; done'; echo exit code $?")
	k.sees("ready\n")
	k.keys(ctrlC)
	k.sees("caught\nexit code 4\n")
}

// A shell's loop ends with what Ctrl-C has ended, which it sees by how redlatch ends.
func TestInterruptKeyEndsLoop(t *testing.T) {
	for _, group := range []string{"", "--own-group"} {
		t.Run(group, func(t *testing.T) {
			k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
			k.keys("for i in 1 2; do redlatch run " + group + " job -- sh -c \"echo number $((10*i)); exec sleep 1000\"; done\n")
			k.sees("number 10\n")
			k.keys(ctrlC)
			k.sees(`\$ `)
			k.keys("echo exit code $?, that is all\n")
			k.sees("exit code 130, that is all\n")
			if strings.Contains(k.all, "number 20\n") {
				t.Errorf("the loop went on: %q", k.all)
			}
		})
	}
}

// One that waits for the lock ends it as well.
func TestInterruptKeyEndsLoopOfWaits(t *testing.T) {
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	if _, err := k.server.Do("SET", "job", "somebody"); err != nil {
		t.Fatal(err)
	}
	k.keys("for i in 1 2; do redlatch run --verbose job -- true; done\n")
	k.sees("waiting for")
	k.keys(ctrlC)
	k.sees("interrupted by SIGINT")
	k.keys("echo exit code $?, that is all\n")
	k.sees("exit code 130, that is all\n")
}

// The keyboard sends to the whole group, of which COMMAND is: it has Ctrl-C once.
func TestInterruptKeyComesOnce(t *testing.T) {
	k := onTerminal(t, "sh", "-c", `redlatch run job -- sh -c '
		trap "n=\$((n+1)); echo caught \$n" INT
		trap "echo \$n in all; exit" TERM
		echo ready; while :; do sleep 0.01; done'`)
	k.sees("ready\n")
	k.keys(ctrlC)
	k.sees("caught 1\n")
	pids, err := descendants(k.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(pids, k.cmd.Process.Pid) {
		if words := readable(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(words, "redlatch\x00run\x00") {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.sees("1 in all\n")
}

// The time that is told for a stopped job is one at which it still goes on.
func TestStopKeyTellsTheTime(t *testing.T) {
	const ttl = 20 * time.Second
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	k.keys("redlatch run --ttl " + ttl.String() + " job -- probe stop\n")
	k.sees("ready\n")
	k.keys(ctrlZ)
	k.sees("is not renewed; COMMAND is killed at ")
	k.sees(" unless it is continued before")
	reply, err := k.server.Do("PEXPIRETIME", "job")
	if err != nil {
		t.Fatal(err)
	}
	expires := time.UnixMilli(reply.(int64))
	_, rest, _ := strings.Cut(k.all, "COMMAND is killed at ")
	clock, _, _ := strings.Cut(rest, " ")
	told, err := time.ParseInLocation("2006-01-02 15:04:05.0", expires.Format("2006-01-02 ")+clock, time.Local)
	if err != nil {
		t.Fatal(err)
	}
	terms := (&runCmd{TTL: ttl}).terms()
	if left := expires.Sub(told); left < terms.guard() || left > ttl {
		t.Errorf("told %v, which is %v before the key expires; the lock counts as lost %v before", told, left, terms.guard())
	}
}

// Ctrl-Z stops the job, and the shell has the terminal; fg goes on with it.
func TestStopKey(t *testing.T) {
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	k.keys("redlatch run job -- probe stop\n")
	k.sees("ready\n")
	k.keys(ctrlZ)
	k.sees(`redlatch: stopped: "job" is not renewed; COMMAND is killed at`)
	k.sees("Stopped")
	k.keys("fg\n")
	k.sees("continued\nin front\n")
	k.keys("echo exit code $?\n")
	k.sees("exit code 0\n")
}

// So it does where CONT was ignored when redlatch started.
func TestStopKeyWithContinueIgnored(t *testing.T) {
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	k.keys("(trap '' CONT; exec redlatch run job -- probe stop)\n")
	k.sees("ready\n")
	k.keys(ctrlZ)
	k.sees("Stopped")
	k.keys("fg\n")
	k.sees("continued\nin front\n")
	k.keys("echo exit code $?\n")
	k.sees("exit code 0\n")
}

// Ctrl-Z stops the job as well when COMMAND has ended and --min-hold has not.
func TestStopKeyInMinHold(t *testing.T) {
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	k.keys("redlatch run --verbose --min-hold 1h job -- true\n")
	k.sees("COMMAND ended; redlatch holds")
	k.keys(ctrlZ)
	k.sees(`redlatch: stopped: "job" is not renewed; it is lost at`)
	k.sees("Stopped")
	k.keys("fg\n")
	k.sees("-- true\n")
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if group, err := unix.IoctlGetInt(int(k.tty.Fd()), unix.TIOCGPGRP); err == nil && group != k.cmd.Process.Pid {
			break // bash has given the terminal to the job
		}
	}
	k.keys(ctrlC)
	k.sees(`(?s)\^C.*\$ |\$ .*\^C`) // what is typed before is dropped
	k.keys("echo exit code $?\n")
	k.sees("exit code 0\n")
}

// A job that is stopped for longer than its TTL is dead when it comes back, and
// others had the lock meanwhile.
func TestStopKeyForTooLong(t *testing.T) {
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	k.keys("redlatch run --ttl 5s job -- probe stop\n") // for a busy machine to stop it in time
	k.sees("ready\n")
	k.keys(ctrlZ)
	k.sees("Stopped")
	k.keys("redlatch run job -- echo number $((1+1))\n")
	k.sees("number 2\n")
	k.keys("fg\n")
	k.sees("lock lost")
	k.keys("echo exit code $?\n")
	k.sees("exit code 76\n")
}

// In a pipeline the others may need the keyboard: a COMMAND with a group of its own
// has it when it asks.
func TestPipeline(t *testing.T) {
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	k.keys("redlatch run --own-group job -- sh -c 'probe where; read line; echo got $line; probe where' | cat\n")
	k.sees("in back\n")
	k.keys("words\n")
	k.sees("got words\nin front\n")
	k.keys("echo exit code $?\n")
	k.sees("exit code 0\n")
}

// A job in the background that wants the keyboard stops, as any does.
func TestBackground(t *testing.T) {
	k := onTerminal(t, "bash", "--norc", "--noediting", "-i")
	k.keys("set -b; redlatch run job -- sh -c 'read line; echo got $line' &\n") // -b: tell of a stop at once
	k.sees("redlatch: stopped: ")
	k.sees("Stopped")
	k.keys("fg\n")
	k.sees("redlatch run")
	k.keys("words\n")
	k.sees("got words\n")
}

// Where nobody could continue us, as in a container's first process, Ctrl-Z
// stops nothing: the kernel does not stop COMMAND, which is in our group.
func TestStopKeyWithoutShell(t *testing.T) {
	k := onTerminal(t, "redlatch", "run", "job", "--", "sh", "-c", "echo ready; read line; echo got $line; probe where")
	k.sees("ready\n")
	k.keys(ctrlZ + "words\n")
	k.sees("got words\nin front\n")
}

// The kernel does stop a COMMAND with a group of its own, and it is continued.
func TestStopKeyWithoutShellOwnGroup(t *testing.T) {
	k := onTerminal(t, "redlatch", "run", "--own-group", "job", "--", "probe", "stop")
	k.sees("ready\n")
	k.keys(ctrlZ)
	k.sees("continued\nin front\n")
}

// Who starts with fresh servers is told on the terminal what the wait is, and the command
// that skips it.
func TestFirstRunSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	k := onTerminal(t, "sh", "-c", `REDLATCH_NO_QUARANTINE=false redlatch run job -- echo it runs`)
	k.sees("waiting for \"job\": too few nodes are admitted: 1 of 1 may have forgotten locks")
	k.sees("a server that has just started does not vote until every lock that it may have granted before has run out, that is for --max-ttl plus 4s")
	k.sees("hint: to skip the wait, if no lock is held any more")
	k.sees("redlatch admit 127.0.0.1:")
}
