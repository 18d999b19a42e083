//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

var margins = flag.Bool("margins", false, "measure how long before its key expires all of COMMAND is dead, and print the tables of docs/run.md")

// A tree that gives most trouble: a child, a grandchild, one in a session of its
// own, and one that starts a new process in its place again and again. None heeds
// SIGTERM, and all have a pipe open, which ends when the last of them is dead.
const marginTree = `exec 9> "$PIPE"
trap '' TERM
sh -c 'sh -c "while :; do sleep 1; done" & wait' &
setsid sh -c 'while :; do sleep 1; done' &
again() { again & }
again
echo > "$PIPE.ready"
while :; do sleep 1; done`

// fault is what befalls a holder.
type fault struct {
	name   string
	befall func(m *marginRun)
}

var marginFaults = []fault{
	{"redlatch killed", func(m *marginRun) { m.signal(syscall.SIGKILL, "redlatch\x00run\x00") }},
	{"redlatch and the guard killed", func(m *marginRun) {
		m.signal(syscall.SIGSTOP, "redlatch\x00run\x00")
		m.signal(syscall.SIGKILL, "redlatch\x00guard-process\x00", "redlatch\x00run\x00")
	}},
	{"redlatch and COMMAND's parent killed", func(m *marginRun) {
		m.signal(syscall.SIGSTOP, "redlatch\x00run\x00")
		m.signal(syscall.SIGKILL, "redlatch\x00parent-process\x00", "redlatch\x00run\x00")
	}},
	{"redlatch stopped", func(m *marginRun) { m.signal(syscall.SIGSTOP, "redlatch\x00run\x00") }},
	{"the server hangs", func(m *marginRun) {
		// As if it was stopped; but when the key is to expire can be asked still.
		_, err := m.server.Do("CLIENT", "PAUSE", "600000", "WRITE")
		m.must(err)
	}},
	{"the network is cut", func(m *marginRun) { m.proxy.BlackHole(redistest.Both, true) }},
}

// TestMargins measures. It fails when a process of COMMAND outlives the key, and is
// left out without -margins: it loads the machine for minutes.
func TestMargins(t *testing.T) {
	if !*margins {
		t.Skip("without -margins")
	}
	fmt.Printf("%s, %s, %d cores, Linux %s, %d rounds of 1s, %d of 3s, %d of 10s\n", time.Now().Format(time.DateOnly), runtime.GOARCH, runtime.NumCPU(), kernel(), rounds(time.Second), rounds(3*time.Second), rounds(10*time.Second))
	for _, load := range []struct{ loops, sleepers int }{{0, 0}, {4 * runtime.NumCPU(), 3000}} {
		t.Run(fmt.Sprintf("%d_%d", load.loops, load.sleepers), func(t *testing.T) {
			// Bounded, for when this test is killed.
			start(t, load.loops, "exec timeout --foreground 20m sh -c 'while :; do :; done'")
			start(t, 1, fmt.Sprintf("for i in $(seq %d); do sleep 20m & done; wait", load.sleepers))
			ttls := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}
			results := make([][][]time.Duration, len(ttls))
			var all sync.WaitGroup
			for i, ttl := range ttls {
				all.Go(func() {
					for _, fault := range marginFaults {
						var left []time.Duration
						for len(left) < rounds(ttl) {
							if margin, ok := measure(t, ttl, fault); ok {
								left = append(left, margin)
							}
						}
						slices.Sort(left)
						results[i] = append(results[i], left)
					}
				})
			}
			all.Wait()
			fmt.Printf("\nBeside %d busy loops and %d other processes; load %s\n\n| | TTL 1s | TTL 3s | TTL 10s |\n|---|---|---|---|\n", load.loops, load.sleepers, strings.Fields(readable("/proc/loadavg"))[0])
			for i, fault := range marginFaults {
				var row strings.Builder
				row.WriteString("| " + fault.name + " |")
				for j := range ttls {
					left := results[j][i]
					row.WriteString(fmt.Sprintf(" %v (%v) |", left[0], left[len(left)/2]))
				}
				fmt.Println(row.String())
			}
			for i, fault := range marginFaults {
				for j, ttl := range ttls {
					if left := results[j][i][0]; left < 0 {
						t.Errorf("%s, TTL %v: COMMAND outlived the key by %v", fault.name, ttl, -left)
					}
				}
			}
		})
	}
}

// rounds is how often a fault is tried.
func rounds(ttl time.Duration) int { return max(2, int(10*time.Second/ttl)/2) }

func kernel() string { return strings.TrimSpace(readable("/proc/sys/kernel/osrelease")) }

// start runs copies of a shell script in the background of a test, each in a group of its
// own, which is killed at its end.
func start(t *testing.T, copies int, script string) {
	for range copies {
		cmd := exec.Command("sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		})
	}
}

// marginRun is one holder and its server.
type marginRun struct {
	t      *testing.T
	server *redistest.Server
	proxy  *redistest.Proxy
	cmd    *exec.Cmd
}

func (m *marginRun) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Error(err)
		panic(err)
	}
}

// signal sends a signal to those of the holder's processes whose command lines begin so,
// in that order.
func (m *marginRun) signal(sig syscall.Signal, lines ...string) {
	pids, err := descendants(m.cmd.Process.Pid)
	m.must(err)
	for _, line := range lines {
		for _, pid := range append(pids, m.cmd.Process.Pid) {
			if strings.HasPrefix(readable("/proc/"+strconv.Itoa(pid)+"/cmdline"), line) {
				m.must(syscall.Kill(pid, sig))
			}
		}
	}
}

// measure returns how long before its key expires all that COMMAND started is dead. It is
// not ok when the machine was so busy that the lock was lost before there was a fault.
func measure(t *testing.T, ttl time.Duration, fault fault) (left time.Duration, ok bool) {
	m := &marginRun{t: t}
	servers, err := redistest.StartNodes(context.Background(), 1, redistest.Options{})
	if err != nil {
		return 0, false // the server was not up in time
	}
	m.server = servers[0]
	defer m.server.Close()
	m.proxy, err = redistest.StartProxy(m.server.Addr(), redistest.ProxyOptions{})
	m.must(err)
	defer m.proxy.Close()
	dir, err := os.MkdirTemp("", "margins")
	m.must(err)
	defer os.RemoveAll(dir)
	pipe := filepath.Join(dir, "pipe")
	m.must(syscall.Mkfifo(pipe, 0o600))

	dead := make(chan time.Time, 1)
	go func() {
		file, err := os.OpenFile(pipe, os.O_RDONLY, 0)
		m.must(err)
		_, _ = io.Copy(io.Discard, file)
		dead <- time.Now()
		file.Close()
	}()
	m.cmd = exec.Command("redlatch", "run", "--ttl", ttl.String(), "job", "--", "sh", "-c", marginTree)
	m.cmd.Env = append(os.Environ(), "PIPE="+pipe, "REDLATCH_NODES="+m.proxy.URL(), "REDLATCH_NO_QUARANTINE=true")
	m.must(m.cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = m.cmd.Wait()
		close(ended)
	}()
	defer func() {
		_, _ = m.server.Do("CLIENT", "UNPAUSE")
		_ = m.cmd.Process.Signal(syscall.SIGCONT)
		<-ended
		if file, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			file.Close() // for the reader of a pipe that COMMAND has not opened
		}
	}()
	for readable(pipe+".ready") == "" {
		select {
		case <-ended:
			return 0, false
		case <-time.After(time.Millisecond):
		}
	}
	conn, err := m.server.Dial(context.Background())
	m.must(err)
	defer conn.Close()
	select {
	case <-ended:
		return 0, false
	case <-time.After(ttl / 2): // after a renewal
	}
	var expires time.Time
	expiryOf(m, conn, &expires)
	fault.befall(m)
	for {
		select {
		case end := <-dead:
			return expires.Sub(end).Truncate(time.Millisecond), !expires.IsZero()
		case <-time.After(10 * time.Millisecond):
			expiryOf(m, conn, &expires)
		}
	}
}

// expiryOf looks when the key is to expire. One that has expired leaves the answer as it
// is.
func expiryOf(m *marginRun, conn *redistest.Conn, expires *time.Time) {
	reply, err := conn.Do("PEXPIRETIME", "job")
	m.must(err)
	if at, _ := reply.(int64); at > 0 {
		*expires = time.UnixMilli(at)
	}
}
