//go:build unix

package spawn

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"
)

// limit ends a test that would hang. It does not measure speed.
const limit = 30 * time.Second

func start(t *testing.T, command ...string) *Process {
	t.Helper()
	p, err := Start(command, "first")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		p.Output.Close()
	})
	return p
}

// A process reads lines of JSON, and ends at the end of its stdin.
func TestProcess(t *testing.T) {
	p := start(t, "cat")
	if err := p.Tell(2); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(p.Output)
	for _, want := range []string{`"first"`, "2"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("it answers %q, want %q", lines.Text(), want)
		}
	}
	if err := p.Finish(limit); err != nil {
		t.Error(err)
	}
	if err := p.Signal(os.Interrupt); err == nil {
		t.Error("a process that has ended takes a signal")
	}
}

// Finish quotes the stderr of a process that fails, and kills a process that does not end.
func TestProcessFails(t *testing.T) {
	err := start(t, "sh", "-c", "cat; echo oh dear >&2; exit 3").Finish(limit)
	if err == nil || !strings.Contains(err.Error(), "exit status 3; it said: oh dear") {
		t.Errorf("got %v", err)
	}
	p := start(t, "sleep", "1000")
	if err := p.Finish(time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not stop within 1ms") {
		t.Errorf("got %v", err)
	}
	<-p.Exited
	if _, err := Start([]string{"/no/such/program"}, 1); err == nil {
		t.Error("a program that is not there starts")
	}
}
