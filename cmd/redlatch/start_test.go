//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// If the lock ends while COMMAND's parent is about to start COMMAND, what COMMAND has left behind by the time
// that its parent ends is killed, too.
func TestLockEndsDuringTheStart(t *testing.T) {
	if err := canWalk(); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "lost-start")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(link).CombinedOutput()
	if err != nil || string(out) != "exit code 76, left: []\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// lostStart is a process of its own for TestLockEndsDuringTheStart, as it waits for all its children. In place
// of the guards it has a shell, which starts COMMAND as soon as the guards are to end.
func lostStart() {
	adoptOrphans()
	shared, _, err := newShared()
	must(err)
	lifeReader, life, err := os.Pipe()
	must(err)
	reports, reportsWriter, err := os.Pipe()
	must(err)
	_, orders, err := os.Pipe()
	must(err)
	g := &guards{shared: shared, ended: make(chan struct{}), life: life, orders: orders, reports: reports}
	g.pid, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", "read line <&3; sleep 1000 3<&- 4>&- &"}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2, lifeReader.Fd(), reportsWriter.Fd()},
	})
	must(err)
	lifeReader.Close()
	reportsWriter.Close()
	c := childOf(g, nil)
	over := make(chan struct{})
	close(over)
	end := c.start("/bin/true", []string{"true"}, nil, false, nil, func() clock.Instant { return clock.System.Now().Add(time.Hour) }, over)
	left, err := descendants(os.Getpid())
	must(err)
	fmt.Printf("exit code %d, left: %v\n", end.code, left)
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
