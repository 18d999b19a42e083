//go:build unix && !linux

package redistest

import (
	"context"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitFrozen trusts that the signal takes effect at once: there is no portable
// way to look.
func (p *process) awaitFrozen(context.Context) error { return nil }
