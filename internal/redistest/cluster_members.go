package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Cluster is a Redis Cluster with replicas. Its methods look at the servers
// themselves, each time, as masters change. Members are killed, frozen and resumed
// by their own methods, and started again by [Cluster.Restart].
//
// Every method blocks until what it does is done and the members that run and
// are not frozen agree on it, ctx is done or a command fails. It is not for
// concurrent use, but for the methods of its servers.
type Cluster struct {
	// Masters are those that began as masters, in order of their slots, and those
	// added since, which have none. Replicas are those that began as replicas, in
	// order of their masters.
	Masters, Replicas []*Server

	opts Options
	ids  map[*Server]string
}

// StartClusterWithReplicas starts a Redis Cluster as [StartCluster] does, each
// of whose masters has so many replicas, that have its data. Options.Args may say
// --cluster-replica-no-failover yes, so that replicas are promoted by order only.
func StartClusterWithReplicas(ctx context.Context, masters, replicasEach int, opts Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	servers, err := StartCluster(ctx, masters, opts)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Masters: servers, opts: opts, ids: make(map[*Server]string)}
	err = c.learn(servers...)
	for i := 0; err == nil && i < masters*replicasEach; i++ {
		var s *Server
		if s, err = c.meet(ctx); err == nil {
			c.Replicas = append(c.Replicas, s)
		}
	}
	for i, s := range c.Replicas {
		if err == nil {
			err = c.Follow(ctx, s, servers[i/replicasEach])
		}
	}
	if err == nil {
		err = c.AwaitServing(ctx)
	}
	if err != nil {
		err = fmt.Errorf("redistest: starting a cluster of %d masters with %d replicas each: %w", masters, replicasEach, err)
		for _, s := range c.Members() {
			_ = s.Close()
		}
		return nil, err
	}
	return c, nil
}

// NewClusterWithReplicas starts a cluster as [StartClusterWithReplicas] does, for
// one test.
func NewClusterWithReplicas(t TB, masters, replicasEach int, opts ...Options) *Cluster {
	t.Helper()
	c, err := StartClusterWithReplicas(context.Background(), masters, replicasEach, only(t, opts))
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, s := range c.Members() {
		adopt(t, s)
	}
	return c
}

// AddMaster starts one more master, without slots, and adds it to Masters. The
// cluster is in order.
func (c *Cluster) AddMaster(ctx context.Context) (*Server, error) {
	s, err := c.meet(ctx)
	if err != nil {
		return nil, fmt.Errorf("redistest: adding a master: %w", err)
	}
	c.Masters = append(c.Masters, s)
	return s, c.AwaitServing(ctx)
}

// NewMaster adds a master as [Cluster.AddMaster] does, for one test.
func (c *Cluster) NewMaster(t TB) *Server {
	t.Helper()
	s, err := c.AddMaster(context.Background())
	if err != nil {
		t.Fatalf("%v", err)
	}
	adopt(t, s)
	return s
}

// Close closes all members.
func (c *Cluster) Close() error {
	var errs []error
	for _, s := range c.Members() {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Members returns all servers of the cluster, living or not.
func (c *Cluster) Members() []*Server { return slices.Concat(c.Masters, c.Replicas) }

// Living returns the members that run and are not frozen.
func (c *Cluster) Living() []*Server {
	return slices.DeleteFunc(c.Members(), func(s *Server) bool { return !s.Running() || s.Frozen() })
}

// ReplicasOf returns the members that a living master has as replicas, living or
// not.
func (c *Cluster) ReplicasOf(master *Server) ([]*Server, error) {
	v, err := c.view(context.Background(), master)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.Members(), func(s *Server) bool { return v[c.ids[s]].master != c.ids[master] }), nil
}

// MasterOf returns the master that a living member replicates, itself if it is one.
func (c *Cluster) MasterOf(s *Server) (*Server, error) {
	v, err := c.view(context.Background(), s)
	if err != nil {
		return nil, err
	}
	if me := v[c.ids[s]]; me.master != "" {
		return c.member(me.master)
	}
	return s, nil
}

// Restart kills a member, if it runs, and starts it again as [Server.Restart] does.
func (c *Cluster) Restart(ctx context.Context, s *Server) error {
	s.Kill()
	if err := mendShards(s.path("nodes.conf")); err != nil {
		return err
	}
	return s.Restart(ctx)
}

// RestartEmpty is Restart without the member's data. It keeps its place in the
// cluster.
func (c *Cluster) RestartEmpty(ctx context.Context, s *Server) error {
	s.Kill()
	if err := mendShards(s.path("nodes.conf")); err != nil {
		return err
	}
	return s.RestartEmpty(ctx)
}

// RestartWith is Restart with the data that [Server.CopyData] has copied, in place of the member's own.
func (c *Cluster) RestartWith(ctx context.Context, s *Server, from string) error {
	s.Kill()
	if err := mendShards(s.path("nodes.conf")); err != nil {
		return err
	}
	return s.RestartWith(ctx, from)
}

var shardOf = regexp.MustCompile(`shard-id=[0-9a-f]+`)

// mendShards gives each replica in a member's file the shard of its master.
// Valkey 8.0 may have written another, as masters tell of their shards later than
// of themselves, and then refuses to start.
func mendShards(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	shards := make(map[string]string)
	for _, line := range lines {
		if words := strings.Fields(line); len(words) > 3 {
			shards[words[0]] = shardOf.FindString(words[1])
		}
	}
	for i, line := range lines {
		if words := strings.Fields(line); len(words) > 3 && shards[words[3]] != "" {
			lines[i] = shardOf.ReplaceAllString(line, shards[words[3]])
		}
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600)
}

// meet starts a server and introduces it to the first living member.
func (c *Cluster) meet(ctx context.Context) (*Server, error) {
	living := c.Living()
	if len(living) == 0 {
		return nil, errors.New("no member is living")
	}
	opts := c.opts
	opts.Args = clusterArgs(opts)
	s, err := Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err = c.learn(s); err == nil {
		_, err = s.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(living[0].Port()))
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// learn asks servers for their ids, which they keep.
func (c *Cluster) learn(servers ...*Server) error {
	for _, s := range servers {
		id, err := s.Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		c.ids[s], _ = id.(string)
	}
	return nil
}

func (c *Cluster) member(id string) (*Server, error) {
	for s, known := range c.ids {
		if known == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: no member of the cluster has the id %q", id)
}

// Follow makes s, which has no slots, a replica of master, and waits until it has
// its data.
func (c *Cluster) Follow(ctx context.Context, s, master *Server) error {
	err := await(ctx, s.exited(), func(context.Context) (bool, error) {
		_, err := s.Do("CLUSTER", "REPLICATE", c.ids[master]) // an error until it knows the master
		return err == nil, err
	})
	if err != nil {
		return err
	}
	return s.AwaitLink(ctx)
}

// member is what one member knows of another.
type member struct {
	addr   string
	master string // the id of the master that it replicates, if any
	slots  []int
	failed bool
}

// view is what one member knows of all, by their ids.
type view map[string]member

// view asks s what it knows. It does not wait longer than ctx for s.
func (c *Cluster) view(ctx context.Context, s *Server) (view, error) {
	reply, err := c.ask(ctx, s, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	v := make(view)
	// id addr flags master ping pong epoch link slot…
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES answered %q", line)
		}
		addr, _, _ := strings.Cut(words[1], "@")
		known := member{addr: addr}
		for flag := range strings.SplitSeq(words[2], ",") {
			known.failed = known.failed || flag == "fail"
		}
		if words[3] != "-" {
			known.master = words[3]
		}
		for _, part := range words[8:] {
			first, last, several := strings.Cut(part, "-")
			if strings.HasPrefix(part, "[") {
				continue // a slot that is on its way is still its owner's
			}
			if !several {
				last = first
			}
			from, err := strconv.Atoi(first)
			to, lastErr := strconv.Atoi(last)
			if err = errors.Join(err, lastErr); err != nil {
				return nil, fmt.Errorf("CLUSTER NODES answered %q: %w", line, err)
			}
			for slot := from; slot <= to; slot++ {
				known.slots = append(known.slots, slot)
			}
		}
		v[words[0]] = known
	}
	return v, nil
}

// ask sends one command, and waits no longer than ctx.
func (c *Cluster) ask(ctx context.Context, s *Server, args ...string) (any, error) {
	conn, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	reply, err := conn.Do(args...)
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", strings.Join(args[:min(len(args), 4)], " "), s.Addr(), err)
	}
	return reply, nil
}
