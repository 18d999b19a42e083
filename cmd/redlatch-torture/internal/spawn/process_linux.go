package spawn

import "syscall"

// attributes has the kernel kill the process when its parent ends.
func attributes(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = syscall.SIGKILL
	return a
}
