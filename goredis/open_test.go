package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/goredis"
	"github.com/redlatch/redlatch/internal/driver/drivertest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// patience bounds what must happen; it says nothing about how fast.
const patience = 40 * time.Second

var config = redlatch.Config{
	NoQuarantine: true, TTL: time.Minute, MaxTTL: time.Minute, // longer than patience
	NodeTimeout: 400 * time.Millisecond, Replicas: redlatch.Replicas{Timeout: 300 * time.Millisecond}, // a starved machine is not the subject
}

func open(t *testing.T, c redlatch.Config, clients ...goredis.Processor) *redlatch.Client {
	t.Helper()
	client, err := goredis.Open(c, clients...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// dial returns a client with little patience for servers that hang.
func dial(t *testing.T, address string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 2 * time.Second})
	t.Cleanup(func() { client.Close() })
	return client
}

func await(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// tryLock tries until the nodes were reached, and do not have a try of this call whose answer
// was late, and which is being undone.
func tryLock(t *testing.T, client *redlatch.Client, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	t.Helper()
	start := time.Now()
	deadline, busy := start.Add(patience), false
	for {
		lock, err := client.TryLock(t.Context(), name, options...)
		failure, _ := errors.AsType[*redlatch.QuorumError](err)
		if busy && failure != nil && errors.Is(err, redlatch.ErrHeld) && time.Now().Before(deadline) {
			if holder, _, _ := failure.Holder(); !holder.Since.Before(start.Truncate(time.Millisecond)) {
				time.Sleep(time.Millisecond)
				continue
			}
		}
		looking := errors.Is(err, redlatch.ErrNotAdmitted) && err.(*redlatch.QuorumError).Nodes[0].Left == 0
		if !looking && !errors.Is(err, redlatch.ErrNoQuorum) || time.Now().After(deadline) {
			return lock, err
		}
		busy = true
	}
}

// unlock expects that a lock is released. A busy machine's nodes may not say so in time.
func unlock(t *testing.T, lock *redlatch.Lock) {
	t.Helper()
	if err := lock.Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Fatal(err)
	}
}

// cycle has a lock acquired, kept from another, extended and released.
func cycle(t *testing.T, name string, holder, other *redlatch.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := holder.Lock(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
		t.Fatalf("another: %v, want ErrHeld", err)
	}
	await(t, "it is extended", func() bool {
		err := first.Extend(t.Context(), config.TTL)
		if err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Fatal(err)
		}
		return err == nil
	})
	unlock(t, first)
	second, err := other.Lock(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d follows %d", second.Token(), first.Token())
	}
	unlock(t, second)
}

// It is one deployment with clients of redlatch.Open: nodes are known by the same
// names.
func TestOneServer(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := config
	c.Nodes = []string{server.URL()}
	direct, err := redlatch.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	client := open(t, config, dial(t, server.Addr()))
	cycle(t, "x", client, direct)
	cycle(t, "x", direct, client)

	if _, _, err := direct.List(t.Context(), "*"); err != nil {
		t.Errorf("List: %v", err)
	}
	_, _, list := client.List(t.Context(), "*")
	_, waiters := client.Waiters(t.Context(), "x")
	_, _, permits := client.Permits(t.Context(), "x")
	for _, err := range []error{list, waiters, permits} {
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "have no URLs") {
			t.Errorf("without URLs: %v", err)
		}
	}
}

// wrapping is a program's hook that adds something to each error.
type wrapping struct{}

func (wrapping) DialHook(next redis.DialHook) redis.DialHook { return next }

func (wrapping) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			return fmt.Errorf("the program's %s: %w", cmd.Name(), err)
		}
		return nil
	}
}

func (wrapping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if err := cmd.Err(); err != nil {
				cmd.SetErr(fmt.Errorf("the program's %s: %w", cmd.Name(), err))
			}
		}
		return err
	}
}

// What a server says is understood whatever a program's hook adds to it.
func TestHookWrapsErrors(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	var clients []*redlatch.Client
	for range 2 {
		rdb := dial(t, server.Addr())
		rdb.AddHook(wrapping{})
		clients = append(clients, open(t, config, rdb))
	}
	cycle(t, "name", clients[0], clients[1])
}

func TestMajority(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	clients := make([]goredis.Processor, len(servers))
	for i, s := range servers {
		clients[i] = dial(t, s.Addr())
	}
	client := open(t, config, clients...)
	cycle(t, "x", client, client)
	servers[1].Kill()
	cycle(t, "x", client, client)
}

func TestSentinels(t *testing.T) {
	t.Parallel()
	s := drivertest.Sentinels(t, redistest.Flavors()[0])
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Master, SentinelAddrs: s.Addresses})
	defer rdb.Close()
	c := config
	c.Nodes = []string{"main"}
	client := open(t, c, rdb)
	defer client.Close()
	cycle(t, "x", client, client)

	// This one speaks as to a Cluster, and finds none.
	rcc := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: s.Master, SentinelAddrs: s.Addresses})
	defer rcc.Close()
	mistaken := open(t, c, rcc)
	await(t, "a failover cluster client is refused, with the remedy", func() bool {
		_, err := mistaken.TryLock(t.Context(), "x")
		return errors.Is(err, redlatch.ErrRefused) && strings.Contains(err.Error(), "redis.NewFailoverClient")
	})

	// With the quarantine on it takes a word more.
	c.NoQuarantine, c.Deployment = false, "accepted"
	if _, err := goredis.Open(c, rdb); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("with the quarantine on: %v, want ErrInvalid", err)
	}
	accepted := open(t, c, goredis.AnySentinel(rdb))
	defer accepted.Close()
	await(t, "the master is vouched for", func() bool { return accepted.Admit(t.Context(), "main") == nil })
	cycle(t, "y", accepted, accepted)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	s := drivertest.Cluster(t, redistest.Flavors()[0])
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addresses[:1]})
	defer rdb.Close()
	c := config
	c.Nodes = []string{"cluster"}
	client := open(t, c, rdb)
	defer client.Close()
	c.Nodes = []string{"redis://" + s.Addresses[2] + "?cluster"}
	direct, err := redlatch.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	c.Nodes = []string{"cluster"}
	own := open(t, c, tracedCluster{rdb})
	for _, name := range []string{"x", "y", "{tag}z", "job17"} {
		cycle(t, name, client, direct)
		cycle(t, name, direct, client)
		cycle(t, name, own, direct)
	}
}

// A try that was given up is undone, though the server executes it later and
// over another connection.
func TestAbandonedTryIsUndone(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := config
	c.NodeTimeout = 50 * time.Millisecond
	client := open(t, c, dial(t, proxy.Addr()))
	cycle(t, "x", client, client)
	for range 10 {
		proxy.HoldBack(redistest.Requests, true)
		if _, err := client.TryLock(t.Context(), "x"); err == nil {
			t.Fatal("held behind a network that delivers nothing")
		}
		proxy.HoldBack(redistest.Requests, false)
		await(t, "the try is undone", func() bool {
			lock, err := client.TryLock(t.Context(), "x")
			return err == nil && lock.Unlock(t.Context()) == nil
		})
	}
	if n, err := server.Do("EXISTS", "x"); n != int64(0) {
		t.Errorf("a key is left: %v, %v", n, err)
	}
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := config
	c.NoQuarantine = false // for longer than a busy machine stands still
	client := open(t, c, dial(t, server.Addr()))
	if err := client.Admit(t.Context(), server.Addr()); err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(t, client, "x"); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(t, client, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Errorf("got %v, want ErrNotAdmitted", err)
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.New(t)
	replica := redistest.NewReplica(t, master)
	c := config
	c.Replicas.Count = 1
	client := open(t, c, dial(t, master.Addr()))
	cycle(t, "x", client, client)
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	defer replica.Resume()
	await(t, "0 of 1 replicas", func() bool {
		_, err := client.TryLock(t.Context(), "x")
		if err == nil {
			t.Fatal("it is held")
		}
		return strings.Contains(err.Error(), "0 of 1 replicas")
	})
}

// These are clients as programs have them, with methods of their own.
type (
	traced        struct{ *redis.Client }
	tracedCluster struct{ *redis.ClusterClient }
	tracedRing    struct{ *redis.Ring }
)

// What cannot work is refused with a word on the remedy.
func TestMisfits(t *testing.T) {
	t.Parallel()
	one, other := redis.NewClient(&redis.Options{Addr: "localhost:1"}), redis.NewClient(&redis.Options{Addr: "localhost:2"})
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"localhost:1"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:1"}})
	readOnly := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:1"}, ReadOnly: true})
	for _, c := range []struct {
		name    string
		config  redlatch.Config
		clients []goredis.Processor
		mention string
	}{
		{"none", redlatch.Config{}, nil, "one for each node"},
		{"nil", redlatch.Config{}, []goredis.Processor{nil}, "nil"},
		{"nil of a type", redlatch.Config{}, []goredis.Processor{(*redis.Client)(nil)}, "nil"},
		{"twice", redlatch.Config{}, []goredis.Processor{one, one}, "vote twice"},
		{"too few names", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{one, other}, "one for each"},
		{"one name for two", redlatch.Config{Nodes: []string{"a", "a"}}, []goredis.Processor{one, other}, "both called a"},
		{"a password in a name", redlatch.Config{Nodes: []string{"u:secret@localhost"}}, []goredis.Processor{one}, "without @"},
		{"control characters in a name", redlatch.Config{Nodes: []string{"a\x1b"}}, []goredis.Processor{one}, "printable"},
		{"a URL for a name", redlatch.Config{Nodes: []string{"redis://localhost:1"}}, []goredis.Processor{one}, "not a URL"},
		{"failover without a name", redlatch.Config{}, []goredis.Processor{failover}, "Config.Nodes[0]"},
		{"failover with the quarantine on", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{failover}, "goredis.AnySentinel"},
		{"failover in a type of the program's", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{traced{failover}}, "goredis.AnySentinel"},
		{"failover twice", redlatch.Config{Nodes: []string{"a", "b"}}, []goredis.Processor{goredis.AnySentinel(failover), failover}, "vote twice"},
		{"ring", redlatch.Config{}, []goredis.Processor{redis.NewRing(&redis.RingOptions{})}, "each server"},
		{"pipeline", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{redis.NewClient(&redis.Options{}).Pipeline()}, "give the client"},
		{"transaction", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{redis.NewClient(&redis.Options{}).TxPipeline()}, "give the client"},
		{"ring in a type of the program's", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{tracedRing{redis.NewRing(&redis.RingOptions{})}}, "each server"},
		{"read-only Cluster in a type of the program's", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{tracedCluster{redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:1"}, ReadOnly: true})}}, "ClusterOptions.ReadOnly"},
		{"a Cluster's replicas for readers", redlatch.Config{Nodes: []string{"a"}}, []goredis.Processor{readOnly}, "never vote"},
		{"replicas of a Cluster", redlatch.Config{Nodes: []string{"a"}, Replicas: redlatch.Replicas{Count: 1}}, []goredis.Processor{cluster}, "Config.Replicas"},
		{"a Config that cannot work", redlatch.Config{TTL: -1}, []goredis.Processor{one}, "Config.TTL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := goredis.Open(c.config, c.clients...)
			if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), c.mention) {
				t.Errorf("got %v, want ErrInvalid and %q", err, c.mention)
			}
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("the password is told: %v", err)
			}
		})
	}
}

// uncomparable is a client of a type that has no ==.
type uncomparable struct {
	goredis.Processor
	_ []int
}

// Whether two clients are one is not asked of a type that would panic.
func TestUncomparableClients(t *testing.T) {
	t.Parallel()
	c := config
	c.Nodes = []string{"a", "b"}
	client := open(t, c, uncomparable{Processor: dial(t, redistest.New(t).Addr())}, uncomparable{Processor: dial(t, redistest.New(t).Addr())})
	await(t, "it locks", func() bool {
		lock, err := client.TryLock(t.Context(), "x")
		if err == nil {
			unlock(t, lock)
		}
		return err == nil
	})
}
