package redistest

import (
	"context"
	"fmt"
)

// StartReplica starts a server that replicates master, with the same binary,
// password and TLS, and blocks until it has the master's data, ctx is done or
// 2 min have gone by. Options.ReplicaOf may name a proxy in front of the master;
// it defaults to the master itself.
func StartReplica(ctx context.Context, master *Server, opts Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s, err := Start(ctx, replicaOptions(master, opts))
	if err != nil {
		return nil, err
	}
	if err := s.AwaitLink(ctx); err != nil {
		err = fmt.Errorf("%w%s", err, indent(s.Log()))
		_ = s.Close() // there is nothing to add to what went wrong first
		return nil, err
	}
	return s, nil
}

// NewReplica starts a replica as [StartReplica] does, for one test.
func NewReplica(t TB, master *Server, opts ...Options) *Server {
	t.Helper()
	s, err := StartReplica(context.Background(), master, only(t, opts))
	if err != nil {
		t.Fatalf("%v", err)
	}
	adopt(t, s)
	return s
}

func replicaOptions(master *Server, o Options) Options {
	if o.Binary == "" {
		o.Binary = master.bin.path
	}
	if o.Password == "" {
		o.Password = master.opts.Password
	}
	if o.ReplicaOf == "" {
		o.ReplicaOf = master.Addr()
	}
	o.TLS = o.TLS || master.opts.TLS
	return o
}

// AwaitLink blocks until the server, a replica, is connected to its master and
// has its data, or ctx is done.
func (s *Server) AwaitLink(ctx context.Context) error {
	err := await(ctx, s.exited(), func(context.Context) (bool, error) {
		info, err := s.Info("replication")
		if err != nil {
			return false, err
		}
		return info["master_link_status"] == "up" && info["master_sync_in_progress"] == "0",
			fmt.Errorf("role %s, link %q", info["role"], info["master_link_status"])
	})
	if err != nil {
		return fmt.Errorf("redistest: waiting for %s to follow its master: %w", s.Addr(), err)
	}
	return nil
}
