//go:build unix

package redisconn

import "golang.org/x/sys/unix"

const canPeek = true

// nothingToRead reports whether a read of fd would block.
func nothingToRead(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}
