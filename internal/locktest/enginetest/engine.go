// Package enginetest tests locks that are kept in an ensemble of three servers of one engine, and has
// what the tests of each engine share: a holder in a process of its own, and locks that are taken
// without minding how busy the machine is.
package enginetest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Engine is what the tests ask of one.
type Engine struct {
	// Name is that of its module.
	Name string
	// Transport is what the goroutines of its clients have in their stacks, beside the module.
	Transport string
	// Open opens a client of some servers, whose locks are under a root.
	Open func(c redlatch.Config, servers []string, root string) (*redlatch.Client, error)
	// Common returns the addresses of servers that no test may harm, or skips the test. They permit what
	// Patient needs.
	Common func(t *testing.T) []string
	// Own starts servers for one test, which may harm them, or skips the test. They permit what
	// Patient needs.
	Own func(t *testing.T) Ensemble
}

// Ensemble is three servers, of which any test may kill some.
type Ensemble interface {
	Addrs() []string
	// KillLeader kills the leader once there is one.
	KillLeader()
	// LeaderPID is the leader's process, once there is one.
	LeaderPID() int
	KillAll()
	StartAll(t redistest.TB)
}

// Patience bounds what must happen; it says nothing about how fast.
const Patience = time.Minute

// TTL is short, for tests that wait until it is over. renewedTTL is for those that hold a lock for longer:
// a busy machine has more time to renew it.
const (
	TTL        = 3 * time.Second
	renewedTTL = 10 * time.Second
)

var (
	// Config is for what waits for the end of a lock.
	Config  = redlatch.Config{TTL: TTL}
	renewed = redlatch.Config{TTL: renewedTTL}
	// Patient is for holders who are to keep their lock, also while servers change, as an election takes
	// seconds, and while a busy machine stands still.
	Patient = redlatch.Config{TTL: 20 * time.Second}
)

// Main is the TestMain of an engine. It runs the tests, stops the servers that they share, and fails
// where goroutines of clients are left. In a child process it is the child.
func (e Engine) Main(m *testing.M) {
	if os.Getenv(childServers) != "" {
		e.child()
		return
	}
	flag.Set("test.parallel", "8") // the tests mostly wait; the command line goes before it
	code := m.Run()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
	if left := e.goroutines(); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left after all tests:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// goroutines are those of clients that have not ended, once all were closed.
func (e Engine) goroutines() (left string) {
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = ""
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "redlatch/"+e.Name+".") || strings.Contains(stack, e.Transport) {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

// Root is a root of the test's own.
func Root(t *testing.T) string {
	return fmt.Sprintf("/%s-%d", strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()), time.Now().UnixNano())
}

// open opens a client that is closed after the test.
func (e Engine) open(t *testing.T, c redlatch.Config, servers []string, root string) *redlatch.Client {
	t.Helper()
	client, err := e.Open(c, servers, root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// clients opens n clients of one root, on servers that no test may harm.
func (e Engine) clients(t *testing.T, n int, c redlatch.Config) []*redlatch.Client {
	t.Helper()
	servers, root := e.Common(t), Root(t)
	all := make([]*redlatch.Client, n)
	for i := range all {
		all[i] = e.open(t, c, servers, root)
	}
	return all
}
