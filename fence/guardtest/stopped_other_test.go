//go:build !linux

package guardtest

import (
	"os"
	"syscall"
)

// No signals: the tests that need them are skipped.
var stopSignal, contSignal os.Signal

func clientAttr() *syscall.SysProcAttr { return nil }
