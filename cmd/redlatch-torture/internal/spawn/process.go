//go:build unix

// Package spawn starts the processes of the demo and of the torture, and makes sure that none
// outlives the program.
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

// Process is a child process. One that Start has started ends at the end of its stdin, and so
// ends when this program does, however that ends. On Linux the kernel kills it then in any case,
// even if it is stopped.
type Process struct {
	Orders *os.File      // this program's end of the process's stdin
	Output *os.File      // this program's end of the process's stdout
	Exited chan struct{} // closed once the process has ended and was waited for

	cmd    *exec.Cmd
	stderr tail
	err    error // how the process ended; written before Exited is closed
}

// Self returns the command line that starts this program with a hidden command.
func Self(command string) ([]string, error) {
	self, err := os.Executable()
	return []string{self, command}, err
}

// Start starts a program with its arguments, and writes order to its stdin as one JSON line.
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
	// The process gets a process group of its own, so that Ctrl-C does not reach it. This program
	// gets the signal, and stops its processes one after the other.
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

// Launch starts a program that reads nothing and writes its output to log. Orders and Output are nil.
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

// launch starts the process and waits for it in a goroutine. That goroutine keeps its thread as
// long as the process runs, because the kernel kills the process when the thread that
// started it ends (prctl(2), PR_SET_PDEATHSIG).
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

// Err returns nil if the process ended with exit code 0, else how it ended. Call it only once Exited
// is closed.
func (p *Process) Err() error { return p.err }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process. It fails if the process has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Tell writes one JSON line to the process's stdin.
func (p *Process) Tell(order any) error { return json.NewEncoder(p.Orders).Encode(order) }

// Kill kills the process, even if it is stopped, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has ended already
	<-p.Exited
	if p.Orders != nil {
		p.Orders.Close()
	}
}

// Finish closes the process's stdin and waits until it ends. It kills the process if that takes longer
// than grace. It returns nil if the process ended in time and with exit code 0.
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

// Said returns the end of what the process wrote to stderr, as the end of an error message, or ""
// if it wrote nothing.
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
	const most = 16 << 10 // enough for the trace of a panic
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
