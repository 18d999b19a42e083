package guardtest

import (
	"os"
	"syscall"
)

// The signals that stop a process, as a long pause of its garbage collector or its virtual machine would, and let it run
// on. Neither can be caught.
var stopSignal, contSignal os.Signal = syscall.SIGSTOP, syscall.SIGCONT

// clientAttr has a client die with us, stopped or not: nobody would ever continue it.
func clientAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
