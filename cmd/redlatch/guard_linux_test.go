package main

import (
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// What COMMAND is started with reaches its parent as it is, or not at all.
func TestOrder(t *testing.T) {
	want := order{path: "/bin/x", ownGroup: true, argv: []string{"x", "", "a b", "\xff\n"}, env: []string{"A=", "B=\xfe"}}
	text := want.encode()
	got, err := decodeOrder(text)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v", got, err)
	}
	for n := range len(text) {
		if got, err := decodeOrder(text[:n]); err == nil {
			t.Errorf("%d of %d bytes make an order: %#v", n, len(text), got)
		}
	}
	if got, err := decodeOrder(strings.Replace(text, "\x004\x00", "\x005000\x00", 1)); err == nil {
		t.Errorf("too many arguments make an order: %#v", got)
	}
}

// If the machine slept while the lock was held, the guards' deadline is earlier by that.
func TestDeadlineOfWhoSlept(t *testing.T) {
	shared, file, err := newShared()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const slept = 59 * time.Minute
	until := clock.System.Now().Add(time.Hour)
	until.Boot -= slept
	shared.extend(until)
	if left, set := shared.left(); !set || left > time.Hour-slept {
		t.Errorf("%v left, %t; want %v at most", left, set, time.Hour-slept)
	}
}

// startTree starts a shell's script as COMMAND, and returns its tree once it has written a line. It ends with the test.
func startTree(t *testing.T, script string) *tree {
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tree := &tree{root: cmd.Process.Pid, spares: func(int) (bool, bool) { return false, true }, group: func() int { return 0 }}
	t.Cleanup(func() {
		tree.clear(limit)
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return tree
}

// A guard that was killed or stopped while it was killing COMMAND leaves the rest to the other one.
func TestDeadlineOfTwoGuards(t *testing.T) {
	if err := canWalk(); err != nil {
		t.Skip(err)
	}
	shared, file, err := newShared()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	bell, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	tree := startTree(t, "sleep 1000 & echo; wait")
	shared.extend(clock.System.Now().Add(-time.Second))
	shared.expired.Store(true) // by the other
	s := &sentinel{shared: shared, tree: tree, alarm: bell, look: make(chan struct{}, 1), gone: make(chan struct{})}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.watch(func([]int) {})
	}()
	defer func() {
		shared.released.Store(true)
		close(s.gone)
		<-over
	}()
	s.look <- struct{}{}
	for end := time.Now().Add(limit); ; time.Sleep(poll) {
		pids, err := descendants(tree.root)
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v live on after %v", pids, limit)
		}
	}
}

// A kernel that does not list children leads to the same ones.
func TestChildren(t *testing.T) {
	if err := canWalk(); err != nil {
		t.Skip(err)
	}
	tree := startTree(t, "sleep 1000 & sleep 1000 & echo; wait")
	for _, parent := range []int{tree.root, os.Getpid()} {
		listed, scanned := listedChildren(parent), scannedChildren()(parent)
		slices.Sort(listed)
		slices.Sort(scanned)
		if len(listed) == 0 || !slices.Equal(listed, scanned) {
			t.Errorf("the children of %d: listed %v, scanned %v", parent, listed, scanned)
		}
	}
	if pids, err := descendants(tree.root); err != nil || len(pids) != 2 {
		t.Errorf("got %v, %v; want two", pids, err)
	}
}

// A program that is not redlatch when it is started again, such as a test binary that
// would run its tests, is not started.
func TestOtherProgramIsNotStarted(t *testing.T) {
	runsMain = false
	t.Cleanup(func() { runsMain = true })
	for _, args := range [][]string{
		{"run", "--nodes", "redis://127.0.0.1:1", "job", "--", "true"},
		{"lock", "--keep", "--nodes", "redis://127.0.0.1:1", "job"},
	} {
		if text := printed(t, args...); !strings.Contains(text, "this program is not redlatch") {
			t.Errorf("%q prints %q", args, text)
		}
	}
}
