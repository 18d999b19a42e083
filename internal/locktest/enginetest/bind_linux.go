package enginetest

import (
	"os/exec"
	"syscall"
)

// bind has a server die with the tests.
func bind(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
