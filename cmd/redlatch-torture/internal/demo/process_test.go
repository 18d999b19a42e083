//go:build unix

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/spawn"
	"github.com/redlatch/redlatch/internal/redistest"
)

// limit ends a test that would hang. It does not measure speed.
const limit = 30 * time.Second

// An embedded node can be hung, killed and brought back at its address, empty,
// like a real one.
func TestEmbeddedNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	e, err := startEmbedded(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	do := func(args ...string) (any, error) {
		t.Helper()
		c, err := redistest.Dial(ctx, e.Addr())
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.Do(args...)
	}
	if _, err := do("SET", "a", "1"); err != nil {
		t.Fatal(err)
	}

	if err := e.Pause(); err != nil {
		t.Fatal(err)
	}
	c, err := redistest.Dial(ctx, e.Addr())
	if err != nil {
		t.Fatal(err) // the kernel accepts connections for a process that hangs
	}
	defer c.Close()
	if err := c.Send("GET", "a"); err != nil {
		t.Fatal(err)
	}
	if err := e.Resume(); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Receive(); v != "1" || err != nil {
		t.Errorf("a server that was hung answers %v, %v", v, err)
	}

	first := e.process
	e.Kill()
	if _, err := do("PING"); err == nil {
		t.Error("a killed server answers")
	}
	if err := e.RestartEmpty(ctx); err != nil {
		t.Fatal(err)
	}
	if v, err := do("GET", "a"); v != nil || err != nil {
		t.Errorf("a server that came back empty has %v, %v", v, err)
	}

	second := e.process
	if err := e.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, p := range []*spawn.Process{first, second} {
		if pid := p.PID(); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// The error of a server that cannot listen says why.
func TestEmbeddedNodePortTaken(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	e, err := startEmbedded(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	other := &embedded{address: e.address}
	defer other.Close()
	if err := other.RestartEmpty(ctx); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second server on %s: %v", e.address, err)
	}
	if other.process != nil {
		t.Error("its process was left behind")
	}
}

// startWorker starts a worker on one embedded node.
func startWorker(t *testing.T, admitted bool) (*spawn.Process, *bufio.Scanner, record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	e, err := startEmbedded(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	a := assignment{Worker: 1, Dir: t.TempDir(), Nodes: (&ground{nodes: []node{e}}).urls()}
	if admitted {
		client, err := redlatch.Open(config(a.Nodes, "test"))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := vouch(ctx, client, 1); err != nil {
			t.Fatal(err)
		}
	}
	r := record{dir: a.Dir}
	if err := r.reset(); err != nil {
		t.Fatal(err)
	}
	p, err := start(WorkerCommand, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		p.Output.Close()
	})
	return p, bufio.NewScanner(p.Output), r
}

func next(t *testing.T, lines *bufio.Scanner) report {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("no report: %v", lines.Err())
	}
	var r report
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		t.Fatalf("%q: %v", lines.Text(), err)
	}
	return r
}

func TestWorker(t *testing.T) {
	p, lines, shared := startWorker(t, true)
	if r := next(t, lines); !r.Ready {
		t.Fatalf("it reports %+v, not that it is ready", r)
	}
	if err := p.Tell("go"); err != nil {
		t.Fatal(err)
	}
	updates := uint64(0)
	for range 3 {
		updates++
		if r := next(t, lines); !r.Locked || !r.Updated || r.Overlap+r.Garbled+r.Disorder != "" || r.Turn == 0 {
			t.Errorf("it reports %+v", r)
		}
	}
	p.Orders.Close()
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Updated { // the last report is of the wait that the end of the race cut short
			updates++
		}
	}
	if err := p.Finish(limit); err != nil {
		t.Error(err)
	}
	if count, _, err := shared.read(); count != updates || err != nil {
		t.Errorf("the record counts %d (%v), the worker reported %d updates", count, err, updates)
	}
}

// A worker that is still waiting when the race ends reports for how long it has waited.
func TestWorkerUnserved(t *testing.T) {
	p, lines, _ := startWorker(t, false)
	next(t, lines)
	if err := p.Tell("go"); err != nil {
		t.Fatal(err)
	}
	p.Orders.Close()
	if r := next(t, lines); r.Unserved == 0 || r.Locked {
		t.Errorf("it reports %+v", r)
	}
	if err := p.Finish(limit); err != nil {
		t.Error(err)
	}
}

// A worker reports the mark of another worker and a token in the record that is larger than its own.
func TestWorkerSeesViolations(t *testing.T) {
	p, lines, r := startWorker(t, true)
	next(t, lines)
	if other, err := r.enter(2); other != "" || err != nil {
		t.Fatal(other, err)
	}
	if err := r.write(5, 1<<52); err != nil { // larger than any token that a node gives now
		t.Fatal(err)
	}
	if err := p.Tell("go"); err != nil {
		t.Fatal(err)
	}
	got := next(t, lines)
	if got.Overlap != "worker 1 found worker 2 at the record" {
		t.Errorf("overlap %q", got.Overlap)
	}
	if !strings.Contains(got.Disorder, "an earlier turn had 4503599627370496") {
		t.Errorf("disorder %q", got.Disorder)
	}
}
