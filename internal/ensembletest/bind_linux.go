package ensembletest

import (
	"os/exec"
	"syscall"
)

// Bind has a process die with the tests.
func Bind(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
