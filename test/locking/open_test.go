package locking

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Two nodes of three refuse and one swallows everything: no quorum can be
// reached, whatever comes of the third, and Open does not wait out the time to
// connect, which is ten steps'.
func TestOpenWithoutAQuorum(t *testing.T) {
	t.Parallel()
	proxies := redistest.Proxies(t, locktest.Shared(t, 3))
	for _, p := range proxies[:2] {
		if err := p.Refuse(true); err != nil {
			t.Fatal(err)
		}
	}
	proxies[2].BlackHole(redistest.Both, true)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.NodeTimeout = time.Second
	const tries = 20 // a busy machine may take as long, but not each time
	var client *redlatch.Client
	for try := 1; ; try++ {
		start := time.Now()
		client = locktest.Open(t, c)
		took := time.Since(start)
		if took <= 5*c.NodeTimeout {
			break
		}
		if try == tries {
			t.Fatalf("Open took %v", took)
		}
	}
	if _, err := client.TryLock(t.Context(), t.Name()); !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("TryLock: %v", err)
	}
}

// One node refuses and two are slow: they are waited for.
func TestOpenWaitsForSlowNodes(t *testing.T) {
	t.Parallel()
	proxies := redistest.Proxies(t, locktest.Shared(t, 3))
	if err := proxies[0].Refuse(true); err != nil {
		t.Fatal(err)
	}
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.NodeTimeout = 100 * time.Millisecond
	for _, p := range proxies[1:] {
		p.BlackHole(redistest.Replies, true)
	}
	slow := 3 * c.NodeTimeout
	start := time.Now()
	time.AfterFunc(slow, func() {
		for _, p := range proxies[1:] {
			p.BlackHole(redistest.Replies, false)
			p.Cut()
		}
	})
	locktest.Open(t, c)
	if took := time.Since(start); took < slow {
		t.Errorf("Open gave the slow nodes up after %v", took)
	}
}
