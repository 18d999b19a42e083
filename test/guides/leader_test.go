package guides

import (
	"context"
	"errors"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// lead has this process lead whenever no other does, until ctx is done. While it leads, work runs
// under a ctx that ends when the lead is lost, and when ctx is done. The term is a number that is
// larger for every later leader.
func lead(ctx context.Context, client *redlatch.Client, name string, work func(ctx context.Context, term uint64) error) error {
	return client.Campaign(ctx, name, func(ctx context.Context) error {
		lock, held := redlatch.Held(ctx, name)
		if !held {
			return context.Cause(ctx) // lost already
		}
		return work(ctx, lock.Token())
	})
}

// follow calls changed with the label of the leader, "" for nobody, until ctx is done. It may be the same
// label again: that of a process that leads anew, or after too few servers answered for a while.
func follow(ctx context.Context, client *redlatch.Client, name string, changed func(leader string)) {
	for holder, err := range client.Observe(ctx, name) {
		if err != nil {
			log.Print(err) // too few servers answer: it goes on when they do
			continue
		}
		changed(holder.Label)
	}
}

// term is one process's time as the leader.
type term struct {
	machine string
	token   uint64
}

// campaign runs lead, and tells of each term as it begins.
func campaign(ctx context.Context, client *redlatch.Client, machine string, terms chan<- term) error {
	return lead(ctx, client, "leader", func(ctx context.Context, token uint64) error {
		terms <- term{machine, token}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// One leads. When it is cut off the other does, with a larger token; when that one ends, the first,
// which stands by again. A follower hears of each.
func TestLead(t *testing.T) {
	t.Parallel()
	servers := locktest.Shared(t, 3)
	proxies := make([]*redistest.Proxy, len(servers))
	for i, s := range servers {
		proxies[i] = redistest.NewProxy(t, s.Addr())
	}
	c := locktest.Config(redistest.URLs(servers)...)
	c.TTL = 3 * time.Second
	terms := make(chan term, 100)
	// await is the next time that the machine leads; on a busy machine others may have led before.
	largest := uint64(0)
	await := func(machine string) {
		t.Helper()
		for deadline := time.After(locktest.Patience); ; {
			select {
			case next := <-terms:
				if next.token <= largest {
					t.Errorf("%v came after %d", next, largest)
				}
				if largest = next.token; next.machine == machine {
					return
				}
			case <-deadline:
				t.Fatalf("%s does not lead", machine)
			}
		}
	}
	leaders := make(chan string, 100)
	hear := func(machine string) {
		t.Helper()
		for deadline := time.After(locktest.Patience); ; {
			select {
			case leader := <-leaders:
				if leader == machine {
					return
				}
			case <-deadline:
				t.Fatalf("the follower does not hear of %s", machine)
			}
		}
	}
	following, unfollow := context.WithCancel(t.Context())
	var over sync.WaitGroup
	follower := locktest.Open(t, c)
	over.Go(func() { follow(following, follower, "leader", func(leader string) { leaders <- leader }) })
	defer func() { unfollow(); over.Wait() }()
	ended := make(chan error, 2)
	start := func(machine string, c redlatch.Config) (stop context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		c.Label = machine
		client := locktest.Open(t, c)
		go func() { ended <- campaign(ctx, client, machine, terms) }()
		return cancel
	}
	stopA := start("a", locktest.Through(c, locktest.ProxyURLs(proxies)...))
	await("a")
	hear("a")
	stopB := start("b", c)
	for _, p := range proxies {
		p.BlackHole(redistest.Both, true)
	}
	await("b")
	hear("b")
	for _, p := range proxies {
		p.BlackHole(redistest.Both, false)
	}
	stopB()
	await("a")
	hear("a")
	stopA()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
