//go:build unix

package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// portFile is shared by the user's processes. Byte n stands for port n; the
// record lock on it ends with the process that took it, however that ends. The
// file stays open for good: closing it would drop all of the process's locks.
var portFile = sync.OnceValue(func() *os.File {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("redistest-ports-%d.lock", os.Getuid()))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil
	}
	return f
})

func lockPort(port int) bool { return portLock(port, syscall.F_WRLCK) == nil }

func unlockPort(port int) { _ = portLock(port, syscall.F_UNLCK) }

// portLock reports no error where there is no file to lock: then the processes
// collide on a port now and then, which Start notices and gets over.
func portLock(port int, kind int16) error {
	f := portFile()
	if f == nil {
		return nil
	}
	lock := syscall.Flock_t{Type: kind, Start: int64(port), Len: 1}
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock)
}
