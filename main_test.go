package redlatch_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/storm"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// patience bounds what must happen; it says nothing about how fast.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(starvedPasses) != "" || os.Getenv(spinner) != "" {
		starvedChild()
		return
	}
	if os.Getenv(childNodes) != "" {
		child()
		return
	}
	flag.Parse()
	if !parallelGiven() {
		// The tests mostly wait: for servers, for TTLs, for what must not happen.
		flag.Set("test.parallel", "10")
	}
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

func parallelGiven() (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	return given
}

// pool has the servers that tests share: they take names and a deployment of
// their own, and break nothing but their own proxies.
var pool servers

type servers struct {
	mu sync.Mutex // guards of; held while servers are started, on purpose
	of map[string][]*redistest.Server
}

// shared returns n servers that no test stops, flushes or configures.
func shared(t *testing.T, n int) []*redistest.Server {
	t.Helper()
	return sharedOf(t, flavors(t)[0], n)
}

func sharedOf(t *testing.T, binary string, n int) []*redistest.Server {
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

// eachFlavor runs f on every kind of server installed.
func eachFlavor(t *testing.T, f func(t *testing.T, binary string)) {
	t.Helper()
	for _, binary := range flavors(t) {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			f(t, binary)
		})
	}
}

var deployments struct {
	mu sync.Mutex // guards n
	n  int
}

// config names the nodes n0, n1, … behind urls in a deployment of their own,
// without the quarantine, and with time enough for a starved machine.
func config(urls ...string) redlatch.Config {
	deployments.mu.Lock()
	defer deployments.mu.Unlock()
	deployments.n++
	named := make([]string, len(urls))
	for i, url := range urls {
		named[i] = fmt.Sprintf("%s#n%d", url, i)
	}
	return redlatch.Config{
		Nodes:        named,
		TTL:          20 * time.Second,
		NodeTimeout:  time.Second,
		Deployment:   fmt.Sprintf("t%d", deployments.n),
		NoQuarantine: true,
	}
}

// through is config with other ways to the same nodes.
func through(c redlatch.Config, urls ...string) redlatch.Config {
	c.Nodes = config(urls...).Nodes
	return c
}

func open(t *testing.T, c redlatch.Config) *redlatch.Client {
	t.Helper()
	client, err := redlatch.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if c.NoQuarantine {
		admitted(t, client, c)
	}
	return client
}

// openIn is open in the surroundings given, with the quarantine or without.
func openIn(t *testing.T, c redlatch.Config, around hook.Surroundings) *redlatch.Client {
	t.Helper()
	opened, err := hook.Open(c, around)
	if err != nil {
		t.Fatal(err)
	}
	client := opened.(*redlatch.Client)
	t.Cleanup(func() { client.Close() })
	return client
}

// openBatched opens a client whose callers are always taken for many: their steps go together.
func openBatched(t *testing.T, c redlatch.Config) *redlatch.Client {
	t.Helper()
	client := openIn(t, c, hook.Surroundings{Batches: true})
	if c.NoQuarantine {
		admitted(t, client, c)
	}
	return client
}

// admitted has the nodes that can be reached admitted: the first vote of a deployment takes more
// commands than those that follow, which tests count and break.
func admitted(t *testing.T, client *redlatch.Client, c redlatch.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, url := range c.Nodes {
		all.Go(func() { client.Admit(ctx, url) })
	}
	all.Wait()
}

func proxyURLs(proxies []*redistest.Proxy) []string {
	urls := make([]string, len(proxies))
	for i, p := range proxies {
		urls[i] = p.URL()
	}
	return urls
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// tryLock locks what is free. Where nodes of a busy machine did not answer in time it tries
// again, until what the last try left is gone.
func tryLock(t *testing.T, c *redlatch.Client, name string, options ...redlatch.Option) *redlatch.Lock {
	t.Helper()
	deadline := time.Now().Add(patience)
	for busy := false; ; {
		lock, err := c.TryLock(t.Context(), name, options...)
		if err == nil {
			return lock
		}
		if busy = busy || late(err); !busy || !late(err) && !errors.Is(err, redlatch.ErrHeld) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		storm.Rest(t.Context(), time.Millisecond)
	}
}

// tryInTime is TryLock, again where nodes of a busy machine were late, and until what that try
// left is gone. After patience it returns what the last try did.
func tryInTime(t *testing.T, c *redlatch.Client, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	t.Helper()
	start := time.Now()
	deadline, busy := start.Add(patience), false
	for {
		lock, err := c.TryLock(t.Context(), name, options...)
		if err == nil || time.Now().After(deadline) {
			return lock, err
		}
		own := false
		if busy && errors.Is(err, redlatch.ErrHeld) {
			holder, _, ok := failureOf(t, err).Holder()
			own = ok && !holder.Since.Before(start.Truncate(time.Millisecond))
		}
		if busy = busy || late(err); !own && !late(err) {
			return nil, err
		}
		storm.Rest(t.Context(), time.Millisecond)
	}
}

// late reports whether a vote failed because nodes or their replicas did not answer in time, were
// still busy with what they had not answered or being looked at, or answered when the TTL was over.
func late(err error) bool {
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	if !ok || !errors.Is(err, redlatch.ErrNoQuorum) && !errors.Is(err, redlatch.ErrNotAdmitted) {
		return false
	}
	possible := 0
	for _, a := range failure.Nodes {
		switch {
		case a.Verdict == redlatch.VoteGranted, a.Verdict == redlatch.VoteUnknown, a.Verdict == redlatch.VoteNotSent, a.Verdict == redlatch.VoteNotReplicated,
			a.Verdict == redlatch.VoteNotAdmitted && a.Left == 0:
			possible++
		}
	}
	return possible >= failure.Need
}

// unlock expects that a lock is released. A busy machine's nodes may not say so in time.
func unlock(t *testing.T, lock *redlatch.Lock) {
	t.Helper()
	if err := lock.Unlock(t.Context()); err != nil && !late(err) {
		t.Errorf("unlock %q: %v", lock.Name(), err)
	}
}

// value returns the string at key, "" when there is none.
func value(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	text, _ := do(t, s, "GET", key).(string)
	return text
}

// remaining returns the key's TTL; it is negative when there is no key or no
// expiry.
func remaining(t *testing.T, s *redistest.Server, key string) time.Duration {
	t.Helper()
	return time.Duration(do(t, s, "PTTL", key).(int64)) * time.Millisecond
}

// await asks check until it reports true, and returns how long that took.
func await(t *testing.T, what string, check func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !check() {
		if time.Since(start) > patience {
			t.Fatalf("after %v still not: %s", patience, what)
		}
		<-tick.C
	}
	return time.Since(start)
}

// awaitValue waits until key has that value on the server.
func awaitValue(t *testing.T, s *redistest.Server, key, want string) time.Duration {
	t.Helper()
	return await(t, fmt.Sprintf("%s is %q on %s", key, want, s.Addr()), func() bool { return value(t, s, key) == want })
}
