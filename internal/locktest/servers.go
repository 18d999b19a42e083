package locktest

import (
	"context"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// pool has the servers that tests share: they take names and a deployment of
// their own, and break nothing but their own proxies.
var pool servers

type servers struct {
	mu sync.Mutex // guards of; held while servers are started, on purpose
	of map[string][]*redistest.Server
}

// Shared returns n servers that no test stops, flushes or configures.
func Shared(t *testing.T, n int) []*redistest.Server {
	t.Helper()
	return SharedOf(t, flavors(t)[0], n)
}

// SharedOf is Shared with servers of one kind.
func SharedOf(t *testing.T, binary string, n int) []*redistest.Server {
	t.Helper()
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if missing := n - len(pool.of[binary]); missing > 0 {
		more, err := redistest.StartNodes(context.Background(), missing, redistest.Options{Binary: binary})
		if err != nil {
			t.Fatal(err)
		}
		if pool.of == nil {
			pool.of = make(map[string][]*redistest.Server)
		}
		pool.of[binary] = append(pool.of[binary], more...)
	}
	return pool.of[binary][:n:n]
}

func (p *servers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.of {
		for _, s := range list {
			s.Close()
		}
	}
}

// flavors are the kinds of server to test on. A missing server fails a test.
func flavors(t *testing.T) []string {
	t.Helper()
	found := redistest.Flavors()
	if len(found) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	return found
}

// EachFlavor runs f on every kind of server installed.
func EachFlavor(t *testing.T, f func(t *testing.T, binary string)) {
	t.Helper()
	for _, binary := range flavors(t) {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			f(t, binary)
		})
	}
}
