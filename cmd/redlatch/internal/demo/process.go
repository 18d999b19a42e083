//go:build unix

package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is this program once more, as a worker or an embedded server. It ends
// when its stdin does, so also when this process ends in any way at all; on
// Linux the kernel kills it then even if it is stopped.
type process struct {
	cmd    *exec.Cmd
	orders *os.File // the other end of its stdin
	output *os.File // the other end of its stdout
	stderr tail
	exited chan struct{} // closed once it is gone and reaped
	err    error         // how it ended; to be read once exited is closed
}

// spawn starts the hidden command, with order as its first line.
func spawn(command string, order any) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stdin, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	output, stdout, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer stdout.Close()
	p := &process{orders: orders, output: output, exited: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: self, Args: []string{os.Args[0], command},
		Stdin: stdin, Stdout: stdout, Stderr: &p.stderr,
		WaitDelay: time.Second,
		// A group of its own: Ctrl-C is for the demo, which then stops all in
		// their order.
		SysProcAttr: attributes(&syscall.SysProcAttr{Setpgid: true}),
	}
	if err := p.launch(); err != nil {
		orders.Close()
		output.Close()
		return nil, err
	}
	if err := p.tell(order); err != nil {
		p.kill()
		p.output.Close()
		return nil, fmt.Errorf("%w%s", err, p.said())
	}
	return p, nil
}

// launch starts the process and has it waited for, both on one thread that lives
// as long as it: for the kernel, the parent that a child is killed with is the
// thread that forked it (prctl(2), PR_SET_PDEATHSIG).
func (p *process) launch() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return <-started
}

// tell writes one JSON line to its stdin.
func (p *process) tell(order any) error { return json.NewEncoder(p.orders).Encode(order) }

// kill ends it at once, stopped or not, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the only error is that it has ended already
	<-p.exited
	p.orders.Close()
}

// finish has it end by itself, and kills it when it has not within grace.
func (p *process) finish(grace time.Duration) error {
	p.orders.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("%w%s", p.err, p.said())
		}
		return nil
	case <-timer.C:
		p.kill()
		return fmt.Errorf("it did not stop within %v and was killed%s", grace, p.said())
	}
}

func (p *process) said() string {
	if text := p.stderr.String(); text != "" {
		return "; it said: " + text
	}
	return ""
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
