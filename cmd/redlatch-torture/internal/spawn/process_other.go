//go:build unix && !linux

package spawn

import "syscall"

// attributes adds nothing: only Linux kills a process when its parent ends.
func attributes(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
