package zookeeper_test

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
	"github.com/redlatch/redlatch/zookeeper"
)

func TestMain(m *testing.M) {
	if os.Getenv(childServers) != "" {
		child()
		return
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "8") // the tests mostly wait
	}
	code := m.Run()
	for _, f := range slices.Backward(shared.cleanups) {
		f()
	}
	if left := goroutines(); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left after all tests:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// goroutines are those of clients that have not ended, once all were closed.
func goroutines() (left string) {
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = ""
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "redlatch/zookeeper.") || strings.Contains(stack, "go-zookeeper/zk.") {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

// patience bounds what must happen; it says nothing about how fast.
const patience = 30 * time.Second

// ttl is short, for tests that wait until it is over.
const ttl = 3 * time.Second

var config = redlatch.Config{TTL: ttl}

// rootOf is a root of the test's own.
func rootOf(t *testing.T) string {
	return fmt.Sprintf("/%s-%d", strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()), time.Now().UnixNano())
}

// open opens a client that is closed after the test.
func open(t *testing.T, c redlatch.Config, e zookeeper.Ensemble) *redlatch.Client {
	t.Helper()
	client, err := zookeeper.OpenWith(c, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// clients opens n clients of one root.
func clients(t *testing.T, e *ensemble, n int) []*redlatch.Client {
	t.Helper()
	ensemble := zookeeper.Ensemble{Servers: e.addrs(), Root: rootOf(t)}
	all := make([]*redlatch.Client, n)
	for i := range all {
		all[i] = open(t, config, ensemble)
	}
	return all
}

func lock(t *testing.T, c *redlatch.Client, name string, options ...redlatch.Option) *redlatch.Lock {
	t.Helper()
	l, err := c.Lock(within(t, patience), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t *testing.T, l *redlatch.Lock) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// outcome is what Lock returned.
type outcome struct {
	lock *redlatch.Lock
	err  error
	at   time.Time
}

// lockIn starts a Lock, and returns where its outcome will be, when it is in the queue.
func lockIn(t *testing.T, c *redlatch.Client, name string, options ...redlatch.Option) <-chan outcome {
	t.Helper()
	out, waits := make(chan outcome, 1), make(chan struct{}, 100)
	options = append(options, redlatch.WithWaitReport(func(error) {
		select {
		case waits <- struct{}{}:
		default:
		}
	}))
	ctx := within(t, patience)
	go func() {
		l, err := c.Lock(ctx, name, options...)
		out <- outcome{l, err, time.Now()}
	}()
	for range 2 { // it was told of a failed try, and then of its place
		select {
		case <-waits:
		case <-time.After(2 * time.Second):
		}
	}
	return out
}
