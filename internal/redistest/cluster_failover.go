package redistest

import (
	"context"
	"errors"
	"fmt"
)

// FailOver has a replica take its master's place in agreement with it: nothing is
// lost. Both are living.
func (c *Cluster) FailOver(ctx context.Context, replica *Server) error {
	return c.promote(ctx, replica)
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
	var role string
	isMaster := func(context.Context) (bool, error) {
		v, err := c.view(ctx, replica)
		if err != nil {
			return false, err
		}
		role = v[c.ids[replica]].master
		return role == "" && len(v[c.ids[replica]].slots) > 0, errors.New("it is a replica still")
	}
	if done, err := isMaster(ctx); done || role == "" {
		return fmt.Errorf("redistest: %s is not a replica: %w", replica.Addr(), err)
	}
	// A failover in agreement is given up where a message is late: then again.
	var err error
	for {
		if _, err = c.ask(ctx, replica, command...); err != nil {
			break
		}
		once, stop := context.WithTimeout(ctx, startLimit/5)
		err = await(once, replica.exited(), isMaster)
		stop()
		if err == nil || ctx.Err() != nil || !replica.Running() {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("redistest: promoting %s: %w", replica.Addr(), err)
	}
	_, err = c.agreed(ctx, func(v view) error {
		if v[c.ids[replica]].master != "" {
			return fmt.Errorf("%s is not known to be a master", replica.Addr())
		}
		return nil
	})
	return err
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
