package locking

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Close stays for a node that hangs no longer than one step, and hardly at all for one that has
// never answered; what was unlocked before is free on the others. On a busy machine it may take
// longer, but not each time.
func TestCloseBesideOneHung(t *testing.T) {
	t.Parallel()
	for _, hung := range []string{"from the start", "later"} {
		for _, n := range []int{3, 5} {
			t.Run(fmt.Sprintf("%s/N=%d", hung, n), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, n)
				proxies := redistest.Proxies(t, nodes)
				c := locktest.Config(locktest.ProxyURLs(proxies)...)
				c.NodeTimeout = 500 * time.Millisecond
				last := proxies[n-1]
				const tries = 30
				for try := 1; ; try++ {
					last.BlackHole(redistest.Both, hung != "later")
					client := locktest.Open(t, c)
					if hung == "later" {
						locktest.Await(t, "all are reached", func() bool { return client.Stats().Contacted == n })
						last.BlackHole(redistest.Both, true)
					}
					name := fmt.Sprintf("%s/%d", t.Name(), try)
					locktest.Unlock(t, locktest.TryLock(t, client, name))
					most := c.NodeTimeout + c.NodeTimeout/2 // it was twice as much, or four times
					if hung != "later" {
						most = c.NodeTimeout
					}
					start := time.Now()
					if err := client.Close(); err != nil {
						t.Fatal(err)
					}
					took := time.Since(start)
					last.BlackHole(redistest.Both, false)
					for _, s := range nodes[:n-1] {
						locktest.Await(t, "it is free", func() bool { return locktest.Value(t, s, name) == "" })
					}
					if took < most {
						t.Logf("closed after %v", took)
						break
					}
					if try == tries {
						t.Fatalf("%d times, Close took longer than %v; at last %v", tries, most, took)
					}
				}
			})
		}
	}
}

// A client whose Open has failed, or found nobody, is closed at once.
func TestCloseUnopened(t *testing.T) {
	t.Parallel()
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// Close ends an Admit or a Reset of a node that hangs, whose ctx has no end.
func TestCloseEndsAdmit(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(*redlatch.Client, context.Context, string) error{
		"Admit": (*redlatch.Client).Admit, "Reset": (*redlatch.Client).Reset,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			const soon, tries = 5 * time.Second, 20 // a busy machine may take as long as the 20 s of Admit, but not each time
			for try := 1; ; try++ {
				took := closeDuring(t, do)
				if took <= soon {
					return
				}
				if try == tries {
					t.Fatalf("Close took %v", took)
				}
			}
		})
	}
}

// closeDuring returns how long Close took while do hung.
func closeDuring(t *testing.T, do func(*redlatch.Client, context.Context, string) error) time.Duration {
	proxies := redistest.Proxies(t, locktest.Shared(t, 1))
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	asked, over := make(chan struct{}, 1), make(chan struct{})
	proxies[0].OnCommand(func(redistest.Command) redistest.Action {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-over
		return redistest.CutBefore
	})
	defer close(over)
	done := make(chan error, 1)
	go func() { done <- do(client, context.WithoutCancel(t.Context()), "n0") }()
	<-asked
	start := time.Now()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	took := time.Since(start)
	if err := <-done; !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("%v", err)
	}
	return took
}
