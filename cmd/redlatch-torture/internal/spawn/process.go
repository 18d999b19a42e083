//go:build unix

// Package spawn starts the processes that the demo and the torture are made of,
// and sees to it that none outlives them.
package spawn

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

// Process is a process that ends when its stdin does, so also when this one ends
// in any way at all; on Linux the kernel kills it then even if it is stopped.
type Process struct {
	Orders *os.File      // the other end of its stdin
	Output *os.File      // the other end of its stdout
	Exited chan struct{} // closed once it is gone and reaped

	cmd    *exec.Cmd
	stderr tail
	err    error // how it ended; to be read once Exited is closed
}

// Self returns the command line of this program's hidden command.
func Self(command string) ([]string, error) {
	self, err := os.Executable()
	return []string{self, command}, err
}

// Start starts a program with its arguments, its stdin beginning with order as
// one JSON line.
func Start(command []string, order any) (*Process, error) {
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
	p := &Process{Orders: orders, Output: output, Exited: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, &p.stderr
	p.cmd.WaitDelay = time.Second
	// A group of its own: Ctrl-C is for this program, which then stops all in
	// their order.
	p.cmd.SysProcAttr = attributes(&syscall.SysProcAttr{Setpgid: true})
	if err := p.launch(); err != nil {
		orders.Close()
		output.Close()
		return nil, err
	}
	if err := p.Tell(order); err != nil {
		p.Kill()
		p.Output.Close()
		return nil, fmt.Errorf("%w%s", err, p.Said())
	}
	return p, nil
}

// Launch starts a program that reads nothing, and whose output goes to log. Orders and Output are nil.
func Launch(command []string, log *os.File) (*Process, error) {
	p := &Process{Exited: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attributes(&syscall.SysProcAttr{Setpgid: true})
	if err := p.launch(); err != nil {
		return nil, err
	}
	return p, nil
}

// launch starts the process and has it waited for, both on one thread that lives
// as long as it: for the kernel, the parent that a child is killed with is the
// thread that forked it (prctl(2), PR_SET_PDEATHSIG).
func (p *Process) launch() error {
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
		close(p.Exited)
	}()
	return <-started
}

// Err is how it ended, nil if in order. It may be asked once Exited is closed.
func (p *Process) Err() error { return p.err }

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends it a signal. The error is that it has ended, if any.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Tell writes one JSON line to its stdin.
func (p *Process) Tell(order any) error { return json.NewEncoder(p.Orders).Encode(order) }

// Kill ends it at once, stopped or not, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // the only error is that it has ended already
	<-p.Exited
	if p.Orders != nil {
		p.Orders.Close()
	}
}

// Finish has it end by itself, and kills it when it has not within grace.
func (p *Process) Finish(grace time.Duration) error {
	p.Orders.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Exited:
		if p.err != nil {
			return fmt.Errorf("%w%s", p.err, p.Said())
		}
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("it did not stop within %v and was killed%s", grace, p.Said())
	}
}

// Said is the end of what it wrote to stderr, for an error message.
func (p *Process) Said() string {
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
	const most = 16 << 10 // a goroutine's panic is whole
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
