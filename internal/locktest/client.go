package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// WithMaxTTL is c with another MaxTTL, and that TTL.
func WithMaxTTL(c redlatch.Config, maxTTL time.Duration) redlatch.Config {
	c.TTL, c.MaxTTL = maxTTL, maxTTL
	return c
}

// WithQuarantine is Config with the quarantine on, which is over RestartQuarantine
// after a server's start.
func WithQuarantine(urls ...string) redlatch.Config {
	c := Config(urls...)
	c.TTL, c.MaxTTL, c.NoQuarantine = RestartTTL, RestartTTL, false
	return c
}

// Vouch has the client vouch for the nodes. Where nodes of a busy machine were late it does so again.
func Vouch(t *testing.T, client *redlatch.Client, urls ...string) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for _, url := range urls {
		err := client.Admit(t.Context(), url)
		for err != nil && !errors.Is(err, redlatch.ErrInvalid) && time.Now().Before(deadline) {
			storm.Rest(t.Context(), time.Millisecond)
			err = client.Admit(t.Context(), url)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

var deployments struct {
	mu sync.Mutex // guards n
	n  int
}

// TTL is longer than Patience: what is gone when that has been waited for was deleted.
const TTL = time.Minute

// Config names the nodes n0, n1, … behind urls in a deployment of their own,
// without the quarantine, and with time enough for a starved machine.
func Config(urls ...string) redlatch.Config {
	deployments.mu.Lock()
	defer deployments.mu.Unlock()
	deployments.n++
	named := make([]string, len(urls))
	for i, url := range urls {
		named[i] = fmt.Sprintf("%s#n%d", url, i)
	}
	return redlatch.Config{
		Nodes:        named,
		TTL:          TTL,
		MaxTTL:       TTL,
		NodeTimeout:  time.Second,
		Deployment:   fmt.Sprintf("t%d", deployments.n),
		NoQuarantine: true,
	}
}

// Through is c with other ways to the same nodes.
func Through(c redlatch.Config, urls ...string) redlatch.Config {
	c.Nodes = Config(urls...).Nodes
	return c
}

// Open opens a client that is closed after the test.
func Open(t *testing.T, c redlatch.Config) *redlatch.Client {
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

// OpenIn is Open in the surroundings given, with the quarantine or without.
func OpenIn(t *testing.T, c redlatch.Config, around hook.Surroundings) *redlatch.Client {
	t.Helper()
	opened, err := hook.Open(c, around)
	if err != nil {
		t.Fatal(err)
	}
	client := opened.(*redlatch.Client)
	t.Cleanup(func() { client.Close() })
	return client
}

// OpenAt opens a client on a machine whose wall clock is off.
func OpenAt(t *testing.T, c redlatch.Config, offset time.Duration) *redlatch.Client {
	t.Helper()
	return OpenIn(t, c, hook.Surroundings{Clock: wrongClock{clock.System, offset}})
}

type wrongClock struct {
	clock.Clock
	offset time.Duration
}

func (c wrongClock) Wall() time.Time { return c.Clock.Wall().Add(c.offset) }

// OpenBatched opens a client whose callers are always taken for many: their steps go together.
func OpenBatched(t *testing.T, c redlatch.Config) *redlatch.Client {
	t.Helper()
	client := OpenIn(t, c, hook.Surroundings{Batches: true})
	if c.NoQuarantine {
		admitted(t, client, c)
	}
	return client
}

// admitted has the nodes that can be reached admitted: the first vote of a deployment takes more
// commands than those that follow, which tests count and break.
func admitted(t *testing.T, client *redlatch.Client, c redlatch.Config) {
	t.Helper()
	limit := Patience
	switch contacted := client.Stats().Contacted; {
	case contacted == 0:
		limit = time.Second // they may not be there at all
	case contacted < len(c.Nodes):
		limit = 5 * time.Second // the others may not be there, or be slow on a busy machine
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var all sync.WaitGroup
	for _, url := range c.Nodes {
		all.Go(func() { client.Admit(ctx, url) })
	}
	all.Wait()
}

// ProxyURLs returns the URLs of the proxies.
func ProxyURLs(proxies []*redistest.Proxy) []string {
	urls := make([]string, len(proxies))
	for i, p := range proxies {
		urls[i] = p.URL()
	}
	return urls
}

// RestartTTL makes the quarantine short: MaxTTL and 4 s.
const (
	RestartTTL        = time.Second
	RestartQuarantine = RestartTTL + 4*time.Second
)

// QuarantineClientOf opens a client of the nodes behind urls with a TTL and MaxTTL, with the
// quarantine or without, that vouches for them if it is to admit.
func QuarantineClientOf(t *testing.T, ttl time.Duration, urls []string, quarantine bool, admit bool) *redlatch.Client {
	t.Helper()
	client, err := redlatch.Open(redlatch.Config{
		Nodes: urls, TTL: ttl, MaxTTL: ttl, NoQuarantine: !quarantine, Deployment: fmt.Sprint("q", quarantine),
		NodeTimeout: time.Second, // a busy machine is not the subject
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if admit && quarantine {
		Vouch(t, client, urls...)
	}
	return client
}
