//go:build unix && !linux

package spawn

import "syscall"

func attributes(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
