// Package locktest has what the tests of locks on real servers share: servers, clients of them,
// locks that are taken and waited for without minding how busy the machine is, and what is seen
// of them on the way and on the servers.
package locktest

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main is the TestMain of a package that uses this one. It runs the tests, stops the servers that
// they share, and fails where goroutines of clients are left. In a child process it is the child.
func Main(m *testing.M) {
	if os.Getenv(ChildNodes) != "" {
		child()
		return
	}
	// The tests mostly wait: for servers, for TTLs, for what must not happen. The command line goes before it.
	flag.Set("test.parallel", "10")
	code := m.Run()
	pool.close()
	if code == 0 {
		if leaked := leakedGoroutines(); leaked != "" {
			fmt.Fprintf(os.Stderr, "goroutines left after all tests:\n%s\n", leaked)
			code = 1
		}
	}
	os.Exit(code)
}
