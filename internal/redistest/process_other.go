//go:build !unix

package redistest

import (
	"context"
	"errors"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr { return nil }

func (p *process) freeze(context.Context) error { return errors.ErrUnsupported }

func (p *process) thaw() error { return errors.ErrUnsupported }

func (p *process) terminate() error { return errors.ErrUnsupported }
