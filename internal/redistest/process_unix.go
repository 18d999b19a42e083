//go:build unix

package redistest

import (
	"context"
	"syscall"
)

func (p *process) freeze(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.awaitFrozen(ctx)
}

func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// terminate asks the process to end in order: it writes its snapshot where save
// points are configured.
func (p *process) terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
