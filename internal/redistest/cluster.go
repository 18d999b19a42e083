package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

const clusterSlots = 16384

// StartCluster starts a Redis Cluster of n masters, 3 at least, without
// replicas: each has an equal share of the slots, in order. It blocks until all
// of them find the cluster complete, ctx is done or 2 min have gone by. After a
// failure none is left running.
func StartCluster(ctx context.Context, n int, opts Options) ([]*Server, error) {
	if n < 3 {
		return nil, fmt.Errorf("redistest: a cluster of %d masters cannot agree on anything, ask for 3 at least", n)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	opts.Args = clusterArgs(opts)
	servers, err := StartNodes(ctx, n, opts)
	if err != nil {
		return nil, err
	}
	err = join(servers)
	for _, s := range servers {
		if err == nil {
			err = s.awaitCluster(ctx, n)
		}
	}
	if err != nil {
		err = fmt.Errorf("redistest: starting a cluster of %d: %w", n, err)
		for _, s := range servers {
			err = fmt.Errorf("%w%s", err, indent(s.Log()))
			_ = s.Close()
		}
		return nil, err
	}
	return servers, nil
}

// clusterArgs are the settings of a member.
func clusterArgs(opts Options) []string {
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}
	if opts.TLS {
		args = append(args, "--tls-cluster", "yes")
	}
	return slices.Concat(args, opts.Args)
}

// NewCluster starts a cluster as [StartCluster] does, for one test.
func NewCluster(t TB, n int, opts ...Options) []*Server {
	t.Helper()
	servers, err := StartCluster(context.Background(), n, only(t, opts))
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, s := range servers {
		adopt(t, s)
	}
	return servers
}

// join shares out the slots and introduces every node to the first.
func join(servers []*Server) error {
	n := len(servers)
	for i, s := range servers {
		first, last := clusterSlots*i/n, clusterSlots*(i+1)/n-1
		commands := [][]string{
			{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)},
			// Epochs that differ from the start spare the nodes a round of
			// settling who has which.
			{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)},
		}
		if i > 0 {
			commands = append(commands, []string{"CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(servers[0].Port())})
		}
		for _, c := range commands {
			if _, err := s.Do(c...); err != nil {
				return fmt.Errorf("%v at %s: %w", c, s.Addr(), err)
			}
		}
	}
	return nil
}

// awaitCluster waits until the server itself finds that all slots are served.
func (s *Server) awaitCluster(ctx context.Context, n int) error {
	size := strconv.Itoa(n)
	return await(ctx, s.exited(), func(context.Context) (bool, error) {
		v, err := s.Do("CLUSTER", "INFO")
		if err != nil {
			return false, err
		}
		text, _ := v.(string)
		info := fields(text)
		if info["cluster_state"] == "ok" && info["cluster_size"] == size && info["cluster_known_nodes"] == size {
			return true, nil
		}
		return false, errors.New(text)
	})
}
