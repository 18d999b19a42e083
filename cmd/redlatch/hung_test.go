//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// hungCommands are what BenchmarkOneHung runs, in this order, and their exit codes. JOB is a
// name, HANDLE what lock printed last, NODE a server that answers. Code -1 is any.
var hungCommands = []struct {
	name string
	code int
	args []string
}{
	{"run", 0, []string{"run", "runJOB", "--", "true"}},
	{"lock", 0, []string{"lock", "JOB"}},
	{"extend", 0, []string{"extend", "JOB", "HANDLE"}},
	{"show", 0, []string{"show", "JOB"}},
	{"list", 0, []string{"list", "JOB"}},
	{"run-n", 75, []string{"run", "-n", "JOB", "--", "true"}},
	{"run-w", -1, []string{"run", "-w", "0.05", "JOB", "--", "true"}}, // 69 where that is over before a quorum has answered
	{"unlock", 0, []string{"unlock", "JOB", "HANDLE"}},
	{"lock-again", 0, []string{"lock", "JOBagain"}},
	{"unlock-force", 0, []string{"unlock", "--force", "--yes", "JOBagain"}},
	{"admit", 0, []string{"admit", "NODE"}},
	{"admit-all", 0, []string{"admit", "--all"}}, // 69 where one hangs: that one is not admitted
	{"admit-all", -1, []string{"admit", "--all"}},
}

// BenchmarkOneHung runs each command with all servers up and with one of them stopped, and
// reports how many times as long it takes then, by the medians of one run: a hung server
// is to cost next to nothing, or the node timeout where each server is asked or told of.
func BenchmarkOneHung(b *testing.B) {
	tool := filepath.Join(b.TempDir(), "redlatch")
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, n := range []int{3, 5} {
		servers, err := redistest.StartNodes(context.Background(), n, redistest.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range servers {
			b.Cleanup(func() { s.Close() })
		}
		env := append(os.Environ(), "REDLATCH_NODES="+strings.Join(redistest.URLs(servers), ","), "REDLATCH_NO_QUARANTINE=true")
		call := func(want int, args ...string) (string, time.Duration) {
			cmd := exec.Command(tool, args...)
			cmd.Env = env
			start := time.Now()
			out, err := cmd.Output()
			took := time.Since(start)
			if code := cmd.ProcessState.ExitCode(); code != want && want >= 0 {
				b.Fatalf("%v: exit code %d (%v), want %d", args, code, err, want)
			}
			return strings.TrimSpace(string(out)), took
		}
		call(0, "admit", "--all")
		name := 0
		// round runs them all once, on names of its own: what a hung server has is there
		// for its TTL.
		round := func(took map[string][]time.Duration, hung bool) {
			name++
			job := fmt.Sprint("job", name)
			handle := ""
			for _, c := range hungCommands {
				args := slices.Clone(c.args)
				for i, arg := range args {
					args[i] = strings.NewReplacer("JOB", job, "HANDLE", handle, "NODE", servers[0].URL()).Replace(arg)
				}
				code := c.code
				if hung && c.name == "admit-all" {
					code = exitNoQuorum
				}
				out, d := call(code, args...)
				if c.name == "lock" || c.name == "lock-again" {
					handle = out
				}
				took[c.name] = append(took[c.name], d)
			}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			up, hung := make(map[string][]time.Duration), make(map[string][]time.Duration)
			for b.Loop() {
				round(up, false)
				// The last one is never the arbiter alone.
				if err := servers[n-1].Pause(); err != nil {
					b.Fatal(err)
				}
				round(hung, true)
				if err := servers[n-1].Resume(); err != nil {
					b.Fatal(err)
				}
			}
			for _, c := range hungCommands {
				b.ReportMetric(float64(median(hung[c.name]))/float64(median(up[c.name])), c.name+"-hung/up")
				b.ReportMetric(float64(median(up[c.name]).Microseconds())/1000, c.name+"-ms")
			}
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// One hung server of three is not waited for: neither by the first contact, nor at the end.
// Waiting for it once in each command would take 5 s, and more than that to close.
func TestOneHungServerIsNotWaitedFor(t *testing.T) {
	servers, err := redistest.StartNodes(t.Context(), 3, redistest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		t.Cleanup(func() { s.Close() })
	}
	t.Setenv("REDLATCH_NODES", strings.Join(redistest.URLs(servers), ","))
	t.Setenv("REDLATCH_NO_QUARANTINE", "true")
	t.Setenv("REDLATCH_NODE_TIMEOUT", "1")
	if code := exitOf(t, []string{"admit", "--all"}); code != 0 {
		t.Fatalf("admit: %d", code)
	}
	if err := servers[2].Pause(); err != nil {
		t.Fatal(err)
	}
	defer servers[2].Resume()
	// The best of several: a busy machine may be late for all.
	best := limit
	for round := 0; round < 10 && best > 3*time.Second; round++ {
		start, job := time.Now(), fmt.Sprint("job", round)
		handle := strings.TrimSpace(printed(t, "lock", job))
		for _, args := range [][]string{{"lock", "-n", "-E", "0", job}, {"extend", job, handle}, {"show", job}, {"unlock", job, handle}} {
			if code := exitOf(t, args); code != 0 {
				t.Errorf("%v: exit code %d", args, code)
			}
		}
		best = min(best, time.Since(start))
	}
	if best > 3*time.Second {
		t.Errorf("five commands took %v", best)
	}
}

// A signal ends the first contact with servers that hang, before it would give them up.
func TestSignalEndsTheFirstContact(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := acquisition{Name: "job"}
	sigs := make(signals, 2)
	sigs <- syscall.SIGUSR1 // means nothing yet
	sigs <- syscall.SIGTERM
	cfg := redlatch.Config{Nodes: []string{"redis://" + silent.Addr().String()}, NodeTimeout: time.Second}
	client, err := r.open(cfg, sigs, &printer{out: io.Discard})
	if client != nil {
		client.Close()
	}
	if end, ok := errors.AsType[*outcome](err); !ok || end.code != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("the first contact ended with %v, want SIGTERM", err)
	}
}

// The end of --wait ends the first contact with servers that hang, before it would give them up.
func TestWaitEndsTheFirstContact(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	wait := 50 * time.Millisecond
	r := acquisition{Name: "job", Wait: &wait}
	cfg := redlatch.Config{Nodes: []string{"redis://" + silent.Addr().String()}, NodeTimeout: time.Second}
	client, err := r.open(cfg, make(signals), &printer{out: io.Discard})
	if client != nil {
		client.Close()
	}
	expectTooLate(t, err)
}

// So does one that is over when the nodes have just been connected to.
func TestWaitEndsBeforeTheFirstTry(t *testing.T) {
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{"redis://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	wait := 50 * time.Millisecond
	r := acquisition{Name: "job", Wait: &wait, until: time.Now()}
	_, end := r.acquire(client, make(signals), &printer{out: io.Discard}, nil)
	expectTooLate(t, end)
}

func expectTooLate(t *testing.T, err error) {
	t.Helper()
	const text = `cannot lock "job": no quorum: --wait 50ms was over before enough nodes had answered`
	if end, ok := errors.AsType[*outcome](err); !ok || end.code != exitNoQuorum || end.Error() != text {
		t.Errorf("got %v, want exit code 69: %s", err, text)
	}
}
