//go:build unix

package redisconn

import (
	"errors"

	"golang.org/x/sys/unix"
)

const canPeek = true

// nothingToRead reports that a read of fd would block.
func nothingToRead(fd uintptr) bool {
	var room [1]byte
	_, _, err := unix.Recvfrom(int(fd), room[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EWOULDBLOCK)
}
