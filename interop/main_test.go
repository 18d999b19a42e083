package interop

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// patience bounds what must happen; it says nothing about how fast.
const patience = 30 * time.Second

// mostNodes is what the Redlock libraries lock.
const mostNodes = 3

// shared has the servers of all tests by flavor; TestMain closes them.
var shared struct {
	sync.Mutex // guards of; held while servers are started, on purpose
	of         map[string][]*redistest.Server
}

func TestMain(m *testing.M) {
	// The tests mostly wait: for TTLs, and for processes to start.
	flag.Set("test.parallel", "8")
	flag.Parse()
	shared.of = make(map[string][]*redistest.Server)
	code := m.Run()
	for _, servers := range shared.of {
		for _, s := range servers {
			s.Close()
		}
	}
	os.Exit(code)
}

// servers returns the first n of a flavor's shared servers.
func servers(t *testing.T, binary string, n int) []*redistest.Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.of[binary] == nil {
		started, err := redistest.StartNodes(context.Background(), mostNodes, redistest.Options{Binary: binary})
		if err != nil {
			t.Fatal(err)
		}
		shared.of[binary] = started
	}
	return shared.of[binary][:n]
}

// eachFlavor runs f on every kind of server installed.
func eachFlavor(t *testing.T, f func(t *testing.T, binary string)) {
	t.Helper()
	flavors := redistest.Flavors()
	if len(flavors) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	for _, binary := range flavors {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			f(t, binary)
		})
	}
}

// open returns a client of nodes whose keys are those of template. The servers
// are fresh, and its deployment is the test's own.
func open(t *testing.T, nodes []*redistest.Server, template string) *redlatch.Client {
	t.Helper()
	urls := redistest.URLs(nodes)
	for i := range urls {
		urls[i] += fmt.Sprintf("#n%d", i)
	}
	client, err := redlatch.Open(redlatch.Config{
		Nodes:        urls,
		KeyTemplate:  template,
		NodeTimeout:  time.Second,
		Deployment:   fmt.Sprintf("interop-%d", len(urls)),
		NoQuarantine: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func do(t *testing.T, s *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// await asks check until it reports true.
func await(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// lockName is the test's own, without what a line of the scripts' protocol may
// not have.
func lockName(t *testing.T) string { return strings.ReplaceAll(t.Name(), " ", "-") }
