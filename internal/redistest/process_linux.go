package redistest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// sysProcAttr has the child die with us, and keeps it out of the terminal's
// process group: an interrupt from the keyboard is for the program that runs
// the servers, which then stops them in its own order.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// awaitFrozen returns when the process that was sent SIGSTOP has stopped; the
// signal itself is only a request. It returns early when the process is gone.
func (p *process) awaitFrozen(ctx context.Context) error {
	name := fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)
	for {
		stat, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("waiting for the process to freeze: %w", err)
		}
		// "pid (name) state …": the name may hold spaces and parentheses.
		rest := stat[bytes.LastIndexByte(stat, ')')+1:]
		if fields := bytes.Fields(rest); len(fields) > 0 && fields[0][0] == 'T' {
			return nil
		}
		if err := pause(ctx, p.exited, 50*time.Microsecond); err != nil {
			return err
		}
	}
}
