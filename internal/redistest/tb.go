package redistest

import (
	"context"
	"time"
)

// TB is the part of testing.TB that is used here. It is an interface of our own
// so that programs which start servers do not carry package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// startLimit bounds a start whose caller set no deadline. A server is up within
// some 20 ms; a loaded machine may need much longer.
const startLimit = 2 * time.Minute

// New starts a server for one test and closes it when the test and its subtests
// are done. At most one Options may be given. It fails the test when no server
// can be started, also when none is installed; a failed test gets the server's
// last log lines.
func New(t TB, opts ...Options) *Server {
	t.Helper()
	s, err := Start(context.Background(), only(t, opts))
	if err != nil {
		t.Fatalf("%v", err)
	}
	adopt(t, s)
	return s
}

// Nodes starts n independent servers at once, all with the same options, and
// closes them when the test is done. It fails the test as New does.
func Nodes(t TB, n int, opts ...Options) []*Server {
	t.Helper()
	servers, err := StartNodes(context.Background(), n, only(t, opts))
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, s := range servers {
		adopt(t, s)
	}
	return servers
}

// URLs returns the servers' addresses as redis:// or rediss:// URLs, in order.
func URLs(servers []*Server) []string {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.URL()
	}
	return urls
}

func adopt(t TB, s *Server) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s (pid %d):\n%s", s.Addr(), s.PID(), s.Log())
		}
		if err := s.Close(); err != nil {
			t.Logf("closing %s: %v", s.Addr(), err)
		}
	})
}

func only(t TB, opts []Options) Options {
	t.Helper()
	switch len(opts) {
	case 0:
		return Options{}
	case 1:
		return opts[0]
	}
	t.Fatalf("redistest: %d Options given, at most one is taken", len(opts))
	return Options{}
}
