package enginetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/ensembletest"
)

// A process of its own that holds the lock "name": it says "held" with the token, and then each
// time that it looks, some milliseconds apart, whether it still holds it and the wall clock.
const (
	childServers = "REDLATCH_TEST_ENGINE"
	childRoot    = "REDLATCH_TEST_ENGINE_ROOT"
)

func (e Engine) child() {
	client, err := e.Open(Config, strings.Split(os.Getenv(childServers), ","), os.Getenv(childRoot))
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := client.Lock(context.Background(), "name")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held", lock.Token())
	for lock.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("lost", time.Now().UnixMicro())
	time.Sleep(time.Hour)
}

// process is a child.
type process struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	token uint64
}

// startChild starts one that holds the lock.
func (e Engine) startChild(t *testing.T, servers []string, root string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childServers+"="+strings.Join(servers, ","), childRoot+"="+root)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	ensembletest.Bind(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	p := &process{cmd: cmd, lines: bufio.NewScanner(out)}
	if _, err := fmt.Sscanf(p.line(t), "held %d", &p.token); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatal("the child has ended: ", p.lines.Err())
	}
	return p.lines.Text()
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
