package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken from below the ranges that kernels give to outgoing
// connections (32768 on Linux, 49152 elsewhere): a client can therefore never
// be given the port of a server that is down for a moment. A cluster node uses
// its port + 10000 too, which stays out of both ranges.
const (
	firstPort = 11000
	lastPort  = 20999
)

var errPortTaken = errors.New("address already in use")

// ports are the ones this process has reserved. A reservation outlives the
// listener, so that neither another test of this process nor, through the file
// lock, one of another process is given the port of a server that is restarting.
var ports = struct {
	mu   sync.Mutex // guards held, and makes looking up and taking one step
	held map[int]bool
}{held: map[int]bool{}}

// ReservePort returns a port that nobody listens on and that no other caller,
// here or in another process, is given before ReleasePort. Somebody who asks
// nobody may still bind it: the caller must be ready to try another.
func ReservePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !reserve(port) {
			continue
		}
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			ReleasePort(port)
			continue
		}
		l.Close()
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

// reserve takes one given port, and reports whether it was free to take.
func reserve(port int) bool {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.held[port] || !lockPort(port) {
		return false
	}
	ports.held[port] = true
	return true
}

// ReleasePort ends a reservation. Releasing a port twice does nothing.
func ReleasePort(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.held[port] {
		delete(ports.held, port)
		unlockPort(port)
	}
}
