package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
)

// StartSentinel starts a Sentinel that watches master under a name, and fails
// over when so many Sentinels, itself counted, agree that it is down. It takes a
// master to be down after 2 s without a word, as of a busy machine, where Options.Args say nothing
// else. It blocks as [Start] does.
func StartSentinel(ctx context.Context, name string, master *Server, quorum int, opts Options) (*Server, error) {
	if opts.Binary == "" {
		opts.Binary = master.bin.path
	}
	opts.Sentinel = true
	opts.TLS = opts.TLS || master.opts.TLS
	args := []string{
		"--sentinel", "monitor", name, "127.0.0.1", strconv.Itoa(master.Port()), strconv.Itoa(quorum),
		"--sentinel", "down-after-milliseconds", name, "2000",
		"--sentinel", "failover-timeout", name, "3000",
	}
	if master.opts.Password != "" {
		args = append(args, "--sentinel", "auth-pass", name, master.opts.Password)
	}
	opts.Args = slices.Concat(args, opts.Args)
	return Start(ctx, opts)
}

// NewSentinel starts a Sentinel as [StartSentinel] does, for one test.
func NewSentinel(t TB, name string, master *Server, quorum int, opts ...Options) *Server {
	t.Helper()
	s, err := StartSentinel(context.Background(), name, master, quorum, only(t, opts))
	if err != nil {
		t.Fatalf("%v", err)
	}
	adopt(t, s)
	return s
}

// MasterAddr asks the server, a Sentinel, for the host:port of the master it
// knows under that name.
func (s *Server) MasterAddr(name string) (string, error) {
	v, err := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
	if err != nil {
		return "", err
	}
	pair, _ := v.([]any)
	if len(pair) != 2 {
		return "", fmt.Errorf("redistest: %s watches no master named %q", s.Addr(), name)
	}
	return net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1])), nil
}

// AwaitReplicas blocks until the server, a Sentinel, has found n replicas of the
// named master that are fit to take over, or ctx is done. Before that it has
// nobody to fail over to.
func (s *Server) AwaitReplicas(ctx context.Context, name string, n int) error {
	err := await(ctx, s.exited(), func(context.Context) (bool, error) {
		v, err := s.Do("SENTINEL", "REPLICAS", name)
		if err != nil {
			return false, err
		}
		list, _ := v.([]any)
		fit := 0
		for _, r := range list {
			pairs, _ := r.([]any)
			for i := 0; i+1 < len(pairs); i += 2 {
				if pairs[i] == "master-link-status" && pairs[i+1] == "ok" {
					fit++
				}
			}
		}
		return fit >= n, fmt.Errorf("%d fit of %d known", fit, len(list))
	})
	if err != nil {
		return fmt.Errorf("redistest: waiting for %s to find %d replicas of %q: %w", s.Addr(), n, name, err)
	}
	return nil
}
