package redistest

import (
	"context"
	"fmt"
)

// FailOver has a replica take its master's place in agreement with it: nothing is
// lost. Both are living.
func (c *Cluster) FailOver(ctx context.Context, replica *Server) error {
	return c.promote(ctx, replica)
}

// FailOverByForce has a replica take its master's place by the votes of the other masters,
// without waiting for what its own still has (CLUSTER FAILOVER FORCE). That one, if it
// lives, becomes its replica and loses what it did not pass on.
func (c *Cluster) FailOverByForce(ctx context.Context, replica *Server) error {
	return c.promote(ctx, replica, "FORCE")
}

// TakeOver has a replica take its master's place without asking anybody, with the
// data that it has (CLUSTER FAILOVER TAKEOVER). The master, if it lives, becomes
// its replica and loses what it did not have.
func (c *Cluster) TakeOver(ctx context.Context, replica *Server) error {
	return c.promote(ctx, replica, "TAKEOVER")
}

func (c *Cluster) promote(ctx context.Context, replica *Server, how ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	command := append([]string{"CLUSTER", "FAILOVER"}, how...)
	id := c.ids[replica]
	isReplica := func() (bool, error) {
		v, err := c.view(ctx, replica)
		return v[id].master != "", err
	}
	if yes, err := isReplica(); !yes {
		return fmt.Errorf("redistest: %s is not a replica: %w", replica.Addr(), err)
	}
	// A failover is given up where a message is late or a vote is missing, also after the
	// replica has once called itself a master: then again.
	for {
		yes, err := isReplica()
		if yes {
			_, err = c.ask(ctx, replica, command...)
		}
		if err == nil {
			once, stop := context.WithTimeout(ctx, startLimit/20)
			err = await(once, replica.exited(), func(ctx context.Context) (bool, error) {
				v, err := c.commonView(ctx)
				if err == nil && (v[id].master != "" || len(v[id].slots) == 0) {
					err = fmt.Errorf("%s is not known to be a master", replica.Addr())
				}
				return err == nil, err
			})
			stop()
			if err == nil {
				return nil
			}
			if ctx.Err() == nil && replica.Running() {
				continue
			}
		}
		return fmt.Errorf("redistest: promoting %s: %w", replica.Addr(), err)
	}
}

// HoldReplication keeps what is written at a living master from now on from all
// replicas of it, which have what was written before, or lets them have it again.
// It is the master that refuses: there is no room for a [Proxy] between two members
// of a cluster, which find each other. The replicas are without a link meanwhile,
// and keep their data. It does not outlive a restart of the master.
func (c *Cluster) HoldReplication(ctx context.Context, master *Server, on bool) error {
	if !on {
		if _, err := c.ask(ctx, master, "ACL", "SETUSER", "default", "+psync", "+sync"); err != nil {
			return err
		}
		return nil
	}
	replicas, err := c.ReplicasOf(master)
	if err != nil {
		return err
	}
	for _, s := range replicas {
		if !s.Running() || s.Frozen() {
			continue
		}
		if err := c.awaitOffset(ctx, master, s); err != nil {
			return err
		}
	}
	for _, command := range [][]string{
		{"ACL", "SETUSER", "default", "-psync", "-sync"},
		{"CLIENT", "KILL", "TYPE", "replica"},
	} {
		if _, err := c.ask(ctx, master, command...); err != nil {
			return err
		}
	}
	return nil
}

// awaitOffset blocks until a replica has what its master has now.
func (c *Cluster) awaitOffset(ctx context.Context, master, replica *Server) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	info, err := master.Info("replication")
	if err != nil {
		return err
	}
	target := info["master_repl_offset"]
	return await(ctx, replica.exited(), func(context.Context) (bool, error) {
		info, err := replica.Info("replication")
		if err != nil {
			return false, err
		}
		has := info["slave_repl_offset"]
		reached := len(has) > len(target) || len(has) == len(target) && has >= target
		return info["master_link_status"] == "up" && reached, fmt.Errorf("the replica is at %s, the master at %s", has, target)
	})
}
