package guides

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// lead has this process lead whenever no other does, until ctx is done. While it leads, work runs
// under a ctx that ends when the lead is lost, and when ctx is done. It returns ctx's error, or one
// that waiting does not cure, or that of work.
func lead(ctx context.Context, client *redlatch.Client, name string, work func(ctx context.Context, token uint64) error) error {
	for {
		lock, err := client.Lock(ctx, name, redlatch.WithMaxHold(365*24*time.Hour))
		if err != nil {
			return err
		}
		term, end := context.WithCancel(lock.Context())
		stop := context.AfterFunc(ctx, end)
		err = work(term, lock.Token())
		stop()
		end()
		lost := errors.Is(lock.Err(), redlatch.ErrLost)
		_ = lock.Unlock(ctx) // another leads at once; if no server can be told, when the TTL is over
		if !lost {
			return err
		}
	}
}

// term is one process's time as the leader.
type term struct {
	machine string
	token   uint64
}

// follow runs lead, and tells of each term as it begins.
func follow(ctx context.Context, client *redlatch.Client, machine string, terms chan<- term) error {
	return lead(ctx, client, "leader", func(ctx context.Context, token uint64) error {
		terms <- term{machine, token}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// One leads. When it is cut off the other does, with a larger token; when that one ends, the first,
// which stands by again.
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
	ended := make(chan error, 2)
	start := func(machine string, c redlatch.Config) (stop context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		client := locktest.Open(t, c)
		go func() { ended <- follow(ctx, client, machine, terms) }()
		return cancel
	}
	stopA := start("a", locktest.Through(c, locktest.ProxyURLs(proxies)...))
	await("a")
	stopB := start("b", c)
	for _, p := range proxies {
		p.BlackHole(redistest.Both, true)
	}
	await("b")
	for _, p := range proxies {
		p.BlackHole(redistest.Both, false)
	}
	stopB()
	await("a")
	stopA()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
