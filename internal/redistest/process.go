package redistest

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
)

// process is one run of a server program.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone and reaped
	frozen atomic.Bool
}

// launch starts cmd. The goroutine that starts it also waits for it, locked to
// its OS thread the whole time: on Linux the child is told to die with its
// parent, and for the kernel that parent is the thread that forked. Go ends
// threads as it pleases; this one lives exactly as long as the child.
func launch(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = sysProcAttr()
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended is in its log
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process at once, frozen or not, and returns when it is reaped.
func (p *process) kill() {
	// The only error is that it has ended already.
	_ = p.cmd.Process.Signal(os.Kill)
	<-p.exited
}
