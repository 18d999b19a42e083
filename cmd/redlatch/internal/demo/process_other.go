//go:build unix && !linux

package demo

import "syscall"

func attributes(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
