package goredis_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/goredis"
	"github.com/redlatch/redlatch/internal/redistest"
)

// mute is a client without Subscribe.
type mute struct {
	goredis.Processor
	pipe interface{ Pipeline() redis.Pipeliner }
}

func muted(client *redis.Client) mute { return mute{client, client} }

func (m mute) Pipeline() redis.Pipeliner { return m.pipe.Pipeline() }

// split is a client whose subscriptions go to another server than its commands, which can be
// sent to a third.
type split struct {
	*redis.Client
	commands atomic.Pointer[redis.Client]
}

func (s *split) Process(ctx context.Context, cmd redis.Cmder) error {
	if c := s.commands.Load(); c != nil {
		return c.Process(ctx, cmd)
	}
	return s.Client.Process(ctx, cmd)
}

func (s *split) Pipeline() redis.Pipeliner {
	if c := s.commands.Load(); c != nil {
		return c.Pipeline()
	}
	return s.Client.Pipeline()
}

type outcome struct {
	lock *redlatch.Lock
	err  error
}

// lockIn calls Lock, which is to wait, and returns where its outcome will be.
func lockIn(t *testing.T, client *redlatch.Client, name string) <-chan outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	out := make(chan outcome, 1)
	go func() {
		defer cancel()
		lock, err := client.Lock(ctx, name)
		out <- outcome{lock, err}
	}()
	return out
}

// has expects that who waits gets the lock.
func has(t *testing.T, out <-chan outcome) {
	t.Helper()
	o := <-out
	if o.err != nil {
		t.Fatal(o.err)
	}
	unlock(t, o.lock)
}

// awaitQueued waits until one waits for the lock, who hears when it is released, or does not.
func awaitQueued(t *testing.T, server *redistest.Server, name string, hears bool) {
	t.Helper()
	await(t, fmt.Sprintf("one waits for %s and hears: %t", name, hears), func() bool {
		reply, err := server.Do("ZRANGE", "redlatch:{"+name+"}:queue:"+name, "0", "-1")
		if err != nil {
			t.Fatal(err)
		}
		waiters, _ := reply.([]any)
		return len(waiters) == 1 && !strings.HasPrefix(waiters[0].(string), "-") == hears
	})
}

// held opens two clients and returns the lock that the first has; the second is opened over waits.
func held(t *testing.T, server *redistest.Server, waits goredis.Processor) (*redlatch.Lock, *redlatch.Client) {
	t.Helper()
	c := config
	c.Nodes = []string{"node"}
	lock, err := tryLock(t, open(t, c, dial(t, server.Addr())), "x")
	if err != nil {
		t.Fatal(err)
	}
	return lock, open(t, c, waits)
}

// Who waits is woken up, and asks for nothing meanwhile but to keep its place; without Subscribe
// it looks again and again.
func TestWokenUp(t *testing.T) {
	t.Parallel()
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			quiet := func(t *testing.T, hears bool) bool {
				server := redistest.New(t, redistest.Options{Binary: binary})
				proxy := redistest.NewProxy(t, server.Addr())
				var waits goredis.Processor = dial(t, proxy.Addr())
				if !hears {
					waits = muted(dial(t, proxy.Addr()))
				}
				lock, client := held(t, server, waits)
				out := lockIn(t, client, "x")
				awaitQueued(t, server, "x", hears)
				before, start := proxy.Stats().Seen["EVALSHA"], time.Now()
				<-time.After(time.Second)
				n, passed := proxy.Stats().Seen["EVALSHA"]-before, time.Since(start)
				unlock(t, lock)
				has(t, out)
				t.Logf("hears: %t, and asked %d times in %v", hears, n, passed.Round(time.Millisecond))
				return n <= 1+int(passed/time.Second)
			}
			for round := 0; !quiet(t, true); round++ {
				if round == 4 { // a busy machine is not late each time
					t.Fatal("who is woken up looks all the same")
				}
			}
			quiet(t, false)
		})
	}
}

// The connections are cut while somebody waits, the wake-up is lost with them, and it has the lock
// all the same; then it is woken up again.
func TestCutWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, redistest.Options{Binary: binary})
			proxy := redistest.NewProxy(t, server.Addr())
			lock, client := held(t, server, dial(t, proxy.Addr()))
			out := lockIn(t, client, "x")
			awaitQueued(t, server, "x", true)
			proxy.Cut()
			awaitQueued(t, server, "x", true)
			proxy.HoldBack(redistest.Replies, true)
			unlock(t, lock)
			proxy.Cut()
			proxy.HoldBack(redistest.Replies, false)
			has(t, out)

			lock, other := held(t, server, dial(t, server.Addr()))
			out = lockIn(t, client, "x")
			awaitQueued(t, server, "x", true)
			unlock(t, lock)
			has(t, out)
			cycle(t, "y", client, other)
		})
	}
}

// The server is killed while somebody waits, and comes back without the lock.
func TestRestartWhileWaiting(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	_, client := held(t, server, dial(t, server.Addr()))
	out := lockIn(t, client, "x")
	awaitQueued(t, server, "x", true)
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, out)
}

// A user who may not hear what others publish, or not ask who hears it, looks as often as one
// without Subscribe.
func TestDeniedToListen(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Users: []string{
		"nosubscribe on >p ~* &* +@all -subscribe",
		"nochannels on >p ~* resetchannels +@all",
		"nonumsub on >p ~* &* +@all -pubsub",
	}})
	for _, user := range []string{"nosubscribe", "nochannels", "nonumsub"} {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "p"})
		t.Cleanup(func() { rdb.Close() })
		lock, client := held(t, server, rdb)
		out := lockIn(t, client, "x")
		awaitQueued(t, server, "x", false)
		unlock(t, lock)
		has(t, out)
	}
}

// A subscription at another server than the commands' wakes nobody up: it counts as none, also
// where the commands go elsewhere only later.
func TestSubscribedElsewhere(t *testing.T) {
	t.Parallel()
	server, elsewhere := redistest.New(t), redistest.New(t)
	waits := &split{Client: dial(t, elsewhere.Addr())}
	waits.commands.Store(dial(t, server.Addr()))
	lock, client := held(t, server, waits)
	out := lockIn(t, client, "x")
	awaitQueued(t, server, "x", false)
	unlock(t, lock)
	has(t, out)

	later := &split{Client: dial(t, server.Addr())}
	lock, client = held(t, server, later)
	out = lockIn(t, client, "x")
	awaitQueued(t, server, "x", true)
	unlock(t, lock)
	has(t, out)
	later.commands.Store(dial(t, elsewhere.Addr()))
	lock, _ = held(t, elsewhere, later)
	out = lockIn(t, client, "x")
	awaitQueued(t, elsewhere, "x", false)
	unlock(t, lock)
	has(t, out)
}

// Nothing comes over the connection of the subscription any more, and it stays open: that is
// noticed, and another is made.
func TestMuteSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	waits := &split{Client: dial(t, proxy.Addr())}
	waits.commands.Store(dial(t, server.Addr()))
	lock, client := held(t, server, waits)
	out := lockIn(t, client, "x")
	awaitQueued(t, server, "x", true)
	proxy.BlackHole(redistest.Replies, true)
	awaitQueued(t, server, "x", false)
	proxy.BlackHole(redistest.Replies, false)
	awaitQueued(t, server, "x", true)
	unlock(t, lock)
	has(t, out)
}

// Close ends a wait and the subscription, also of a server that hangs.
func TestCloseWhileListening(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	_, client := held(t, server, dial(t, server.Addr()))
	out := lockIn(t, client, "x")
	awaitQueued(t, server, "x", true)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Resume() })
	closed := make(chan struct{})
	go func() {
		client.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close waits for a server that hangs")
	}
	if o := <-out; o.err == nil {
		t.Error("a closed client has the lock")
	}
}
