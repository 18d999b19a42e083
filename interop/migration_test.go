package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What docs/guides/from-redsync.md and from-redislock.md show stands here word for word.

// redsyncDo is how the program locked before.
func redsyncDo(ctx context.Context, rs *redsync.Redsync, name string, work func(ctx context.Context) error) error {
	mutex := rs.NewMutex("lock:"+name, redsync.WithExpiry(8*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(context.WithoutCancel(ctx))
	return work(ctx)
}

// besideRedsync opens a client of the same servers, whose locks have the same keys.
func besideRedsync(urls ...string) (*redlatch.Client, error) {
	return redlatch.Open(redlatch.Config{
		Nodes:       urls,
		KeyTemplate: "lock:{name}",   // as "lock:"+name
		MaxTTL:      8 * time.Second, // no less than the longest expiry of redsync there is
	})
}

// redislockDo is how the program locked before.
func redislockDo(ctx context.Context, locker *redislock.Client, name string, work func(ctx context.Context) error) error {
	lock, err := locker.Obtain(ctx, "lock:"+name, 10*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(50 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))
	return work(ctx)
}

// besideRedislock opens a client of the same server, whose locks have the same keys.
func besideRedislock(url string) (*redlatch.Client, error) {
	return redlatch.Open(redlatch.Config{
		Nodes:       []string{url},
		KeyTemplate: "lock:{name}",    // as "lock:"+name
		MaxTTL:      10 * time.Second, // no less than the longest TTL given to Obtain or Refresh
	})
}

// redlatchDo is how it locks afterwards.
func redlatchDo(ctx context.Context, client *redlatch.Client, name string, work func(ctx context.Context) error) error {
	return client.Do(ctx, name, work)
}

// way runs work under the lock name, in one of the libraries.
type way func(ctx context.Context, name string, work func(ctx context.Context) error) error

// move is a program of three instances that moves from one library to Redlatch.
type move struct {
	old  func(t *testing.T, nodes []*redistest.Server) way
	open func(urls []string) (*redlatch.Client, error)
	// nodes is how many servers it locks.
	nodes int
}

var moves = map[string]move{
	"redsync": {
		old: func(t *testing.T, nodes []*redistest.Server) way {
			pools := make([]redsyncredis.Pool, len(nodes))
			for i, s := range nodes {
				pools[i] = goredis.NewPool(goRedis(t, s))
			}
			rs := redsync.New(pools...)
			return func(ctx context.Context, name string, work func(ctx context.Context) error) error {
				return redsyncDo(ctx, rs, name, work)
			}
		},
		open:  func(urls []string) (*redlatch.Client, error) { return besideRedsync(urls...) },
		nodes: 3,
	},
	"redislock": {
		old: func(t *testing.T, nodes []*redistest.Server) way {
			locker := redislock.New(goRedis(t, nodes[0]))
			return func(ctx context.Context, name string, work func(ctx context.Context) error) error {
				return redislockDo(ctx, locker, name, work)
			}
		},
		open:  func(urls []string) (*redlatch.Client, error) { return besideRedislock(urls[0]) },
		nodes: 1,
	},
}

// begin starts the servers, and opens a client that vouches for them, as they are new.
func (m move) begin(t *testing.T, binary string) (nodes []*redistest.Server, client *redlatch.Client) {
	t.Helper()
	nodes = redistest.Nodes(t, m.nodes, redistest.Options{Binary: binary})
	client, err := m.open(redistest.URLs(nodes))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for _, s := range nodes {
		await(t, "the server votes", func() bool { return client.Admit(t.Context(), s.URL()) == nil })
	}
	return nodes, client
}

// sections is how often each instance does what it does under the lock.
const sections = 10

// One instance after the other moves, and at every step one is inside at a time.
func TestMoveExcludesAtEveryStep(t *testing.T) {
	t.Parallel()
	eachMove(t, func(t *testing.T, m move, binary string) {
		nodes, client := m.begin(t, binary)
		for moved := range 4 {
			ctx := within(t, 2*patience)
			var inside atomic.Int32
			var all sync.WaitGroup
			for instance := range 3 {
				do := m.old(t, nodes)
				if instance < moved {
					do = func(ctx context.Context, name string, work func(ctx context.Context) error) error {
						return redlatchDo(ctx, client, name, work)
					}
				}
				all.Go(func() { contend(ctx, t, fmt.Sprintf("%d moved, instance %d", moved, instance), do, &inside) })
			}
			all.Wait()
		}
	})
}

// contend does all of one instance's sections. A try that fails, as the library gives up before
// others are done or a server was late, is repeated.
func contend(ctx context.Context, t *testing.T, who string, do way, inside *atomic.Int32) {
	for done := 0; done < sections; {
		err := do(ctx, "stock", func(context.Context) error {
			if inside.Add(1) != 1 {
				t.Errorf("%s: another is inside", who)
			}
			time.Sleep(5 * time.Millisecond)
			inside.Add(-1)
			done++
			return nil
		})
		if ctx.Err() != nil {
			t.Errorf("%s: %d of %d times inside: %v", who, done, sections, err)
			return
		}
		time.Sleep(20 * time.Millisecond) // for the others, who do not wait in a queue
	}
}

// Without the template they do not see each other.
func TestMoveNeedsTheKeys(t *testing.T) {
	t.Parallel()
	eachMove(t, func(t *testing.T, m move, binary string) {
		nodes, _ := m.begin(t, binary)
		wrong := open(t, nodes, "{name}")
		both := func(ctx context.Context) error {
			lock, err := wrong.TryLock(ctx, "stock")
			if err != nil {
				return err
			}
			for _, s := range nodes {
				if do(t, s, "EXISTS", "lock:stock") != int64(1) {
					return errors.New("theirs has run out")
				}
			}
			return lock.Unlock(ctx)
		}
		await(t, "both hold it", func() bool { return m.old(t, nodes)(t.Context(), "stock", both) == nil })
	})
}

// The pages name the versions that these tests run.
func TestMovePages(t *testing.T) {
	for library, path := range map[string]string{"redsync": "github.com/go-redsync/redsync/v4", "redislock": "github.com/bsm/redislock"} {
		page, err := os.ReadFile("../docs/guides/from-" + library + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if want := library + " " + module(path)(t); !strings.Contains(string(page), want+":") {
			t.Errorf("from-%s.md does not say %s", library, want)
		}
	}
}

func eachMove(t *testing.T, f func(t *testing.T, m move, binary string)) {
	for library, m := range moves {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, binary string) { f(t, m, binary) })
		})
	}
}
