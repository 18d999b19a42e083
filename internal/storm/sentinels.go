package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

const password = "s3cret"

// sentinels is a master with a replica, and three Sentinels. The first of these hears of
// nothing but the server that it was told to watch: it stands for the minority. Half of the
// clients ask the Sentinels by ways that can be closed.
type sentinels struct {
	locks
	servers [2]*redistest.Server
	master  int // the index of it
	watch   []*redistest.Server
	ways    []*redistest.Proxy
	wait    time.Duration
	luck    *rand.Rand
}

// RunSentinels is Run over a master that Sentinels watch: failovers, some by a replica that
// lags, masters that are killed or hang and are replaced, and partitions in which the former
// master, one Sentinel and half of the clients are on one side. open opens a client for the
// node's URL.
func RunSentinels(t *testing.T, binary string, open func(*testing.T, redlatch.Config) *redlatch.Client) {
	if testing.Short() || raceEnabled {
		t.Skip("takes a minute, and is too much for the race detector: make storm")
	}
	seed := seed.Of(t)
	s := &sentinels{locks: newLocks(), wait: ttl + 4*time.Second, luck: rand.New(rand.NewPCG(seed, 0))}
	options := redistest.Options{Binary: binary, Password: password}
	s.servers[0] = redistest.New(t, options)
	s.servers[1] = redistest.NewReplica(t, s.servers[0], options)
	must(t, s.admitLoneSentinel(s.servers[0]), s.admitLoneSentinel(s.servers[1]))
	s.watch = []*redistest.Server{
		redistest.NewSentinel(t, "main", s.servers[0], 2, redistest.Options{Args: []string{"--sentinel", "auth-user", "main", "alone"}}),
		redistest.NewSentinel(t, "main", s.servers[0], 2), redistest.NewSentinel(t, "main", s.servers[0], 2),
	}
	s.ways = redistest.Proxies(t, s.watch)
	ctx, cancel := context.WithTimeout(t.Context(), max(longest, time.Duration(*holders)*20*time.Millisecond))
	defer cancel()
	must(t, s.settle(ctx))

	config := redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: nodeTimeout}
	for i := range 6 {
		at := []string{s.watch[0].Addr(), s.watch[1].Addr(), s.watch[2].Addr()}
		if i%2 == 0 {
			at = []string{s.ways[0].Addr(), s.ways[1].Addr(), s.ways[2].Addr()}
		}
		c := config
		c.Nodes = []string{fmt.Sprintf("redis://:%s@%s?addr=%s&addr=%s&master_set=main#%s", password, at[0], at[1], at[2], Node)}
		s.clients = append(s.clients, open(t, c))
	}
	Admit(t, s.clients[0])
	for i := range 30 {
		s.names = append(s.names, fmt.Sprint("job", i))
	}
	stop := s.begin(ctx, seed)
	defer stop()
	done := s.strike(ctx, t)
	for i, name := range s.names {
		limit, cancel := context.WithTimeout(ctx, s.wait+margin)
		lock, err := s.clients[i%len(s.clients)].Lock(limit, name)
		cancel()
		if err != nil {
			t.Errorf("%q cannot be locked: %v", name, err)
			continue
		}
		s.holdings.keep(lock, 0, ctx.Done())
		lock.Unlock(ctx)
	}
	stop()
	s.check(t, done)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// strike has faults befall the master until there were enough of them and of holders.
func (s *sentinels) strike(ctx context.Context, t *testing.T) (done []string) {
	t.Helper()
	kinds := []struct {
		name   string
		happen func(context.Context) error
	}{
		{"failover", func(ctx context.Context) error { return s.failOver(ctx) }},
		{"failover to a replica that lags", s.lag},
		{"partition", s.split},
		{"killed", s.kill},
		{"hung", s.hang},
	}
	order := s.luck.Perm(len(kinds))
	for i := 0; ctx.Err() == nil; i++ {
		if *holders == 0 && i >= fewFaults-2 && s.enough() || i >= len(kinds) && *holders > 0 && s.holdings.count() >= *holders {
			return done
		}
		f := kinds[order[i%len(order)]]
		Rest(ctx, time.Duration(s.luck.Int64N(int64(s.wait+time.Second))))
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		t.Logf("%v: %s (%d holders so far)", time.Since(s.holdings.start).Round(time.Millisecond), f.name, s.holdings.count())
		err := f.happen(limit)
		if err == nil {
			err = s.settle(limit)
		}
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		done = append(done, f.name)
	}
	t.Errorf("the time is over after %v", done)
	return done
}

// now runs commands on a server.
func now(server *redistest.Server, commands ...[]string) error {
	for _, command := range commands {
		if _, err := server.Do(command...); err != nil {
			return fmt.Errorf("%v at %s: %w", command, server.Addr(), err)
		}
	}
	return nil
}

// until asks check often, until it returns nil or ctx is done.
func until(ctx context.Context, check func() error) error {
	for {
		err := check()
		if err == nil || ctx.Err() != nil {
			return err
		}
		Rest(ctx, 20*time.Millisecond)
	}
}

// admitLoneSentinel lets the first Sentinel in, which hears no other there, and may not tell
// a server whose replica it is: it would have the promoted one follow the former master, who
// is told the opposite by the others.
func (s *sentinels) admitLoneSentinel(server *redistest.Server) error {
	return now(server, []string{"ACL", "SETUSER", "alone", "on", ">" + password, "allkeys", "+@all", "-replicaof", "-slaveof", "resetchannels"})
}

// replaced waits until the two Sentinels name the other server.
func (s *sentinels) replaced(ctx context.Context) error {
	next := s.servers[1-s.master].Addr()
	err := until(ctx, func() error {
		for _, w := range s.watch[1:] {
			if address, err := w.MasterAddr("main"); err != nil || address != next {
				return fmt.Errorf("%s names %s and not %s: %w", w.Addr(), address, next, errors.Join(err, context.Cause(ctx)))
			}
		}
		return nil
	})
	if err == nil {
		s.master = 1 - s.master
	}
	return err
}

func (s *sentinels) failOver(ctx context.Context) error {
	err := until(ctx, func() error { return now(s.watch[1], []string{"SENTINEL", "FAILOVER", "main"}) })
	return errors.Join(err, s.replaced(ctx))
}

// lag has the replica take over without the last that its master wrote.
func (s *sentinels) lag(ctx context.Context) error {
	old := s.servers[s.master]
	err := now(old, []string{"ACL", "SETUSER", "default", "-psync", "-sync"}, []string{"CLIENT", "KILL", "TYPE", "replica"})
	Rest(ctx, time.Duration(s.luck.Int64N(int64(time.Second))))
	err = errors.Join(err, s.failOver(ctx))
	return errors.Join(err, now(old, []string{"ACL", "SETUSER", "default", "+psync", "+sync"}))
}

// split leaves the former master alone with one Sentinel and half of the clients.
func (s *sentinels) split(ctx context.Context) error {
	old := s.servers[s.master]
	err := now(old, []string{"ACL", "SETUSER", "default", "-replicaof", "-slaveof"})
	for _, way := range s.ways[1:] {
		way.HoldBack(redistest.Both, true)
	}
	err = errors.Join(err, s.failOver(ctx))
	Rest(ctx, s.wait+time.Duration(s.luck.Int64N(int64(4*time.Second))))
	for _, way := range s.ways[1:] {
		way.HoldBack(redistest.Both, false)
	}
	return errors.Join(err, now(old, []string{"ACL", "SETUSER", "default", "+replicaof", "+slaveof"}))
}

func (s *sentinels) kill(ctx context.Context) error {
	old := s.servers[s.master]
	old.Kill()
	err := s.replaced(ctx)
	Rest(ctx, time.Duration(s.luck.Int64N(int64(s.wait))))
	return errors.Join(err, old.Restart(ctx), s.admitLoneSentinel(old))
}

func (s *sentinels) hang(ctx context.Context) error {
	old := s.servers[s.master]
	if err := old.Pause(); err != nil {
		return err
	}
	err := s.replaced(ctx)
	Rest(ctx, time.Duration(s.luck.Int64N(int64(2*s.wait))))
	return errors.Join(err, old.Resume())
}

// settle waits until the other server is a replica that can take over, and tells the first
// Sentinel who the master is.
func (s *sentinels) settle(ctx context.Context) error {
	for _, w := range s.watch[1:] {
		if err := w.AwaitReplicas(ctx, "main", 1); err != nil {
			return err
		}
	}
	return now(s.watch[0], []string{"SENTINEL", "REMOVE", "main"},
		[]string{"SENTINEL", "MONITOR", "main", "127.0.0.1", fmt.Sprint(s.servers[s.master].Port()), "2"},
		[]string{"SENTINEL", "SET", "main", "auth-pass", password}, []string{"SENTINEL", "SET", "main", "auth-user", "alone"},
		[]string{"SENTINEL", "SET", "main", "down-after-milliseconds", "2000"})
}
