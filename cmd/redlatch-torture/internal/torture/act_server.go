//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// doing is a command to a server, for later.
func doing(s *redistest.Server, command ...string) func() error {
	return func() error {
		_, err := s.Do(command...)
		return err
	}
}

// attachReplica gives a node a replica, which the undo takes away.
func attachReplica(ctx context.Context, p *place) (undo func() error, err error) {
	replica, err := redistest.StartReplica(ctx, p.server, redistest.Options{})
	if err != nil {
		return nil, leftOutIfEnded(ctx, err)
	}
	return replica.Close, nil
}

// leftOutIfEnded is err, or errLeftOut if the end of ctx may be its reason.
func leftOutIfEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errLeftOut, context.Cause(ctx))
	}
	return err
}

// changeable is a setting that may be changed while a server runs.
type changeable struct {
	name   string
	values [2]string // what it is changed to: the first that it is not
}

var changeables = []changeable{
	{"appendonly", [2]string{"yes", "no"}},
	{"appendfsync", [2]string{"everysec", "no"}},
	{"save", [2]string{"1 1", ""}},
	{"maxmemory-policy", [2]string{"allkeys-lru", "noeviction"}},
}

func changeableOf(whom int) changeable { return changeables[whom%len(changeables)] }

// disturb carries out what befalls a server in the same way wherever it is.
func disturb(ctx context.Context, it item, s *redistest.Server) (undo func() error, err error) {
	switch it.kind {
	case settings:
		return changeSetting(ctx, s, it.whom)
	case flush:
		return nil, doing(s, "FLUSHALL")()
	case scripts:
		return nil, doing(s, "SCRIPT", "FLUSH")()
	}
	panic("torture: no disturbance: " + string(it.kind))
}

// changeSetting changes one setting of a server. The undo blocks until the server has all its
// data on disk again, if it had before.
func changeSetting(ctx context.Context, s *redistest.Server, whom int) (undo func() error, err error) {
	c := changeableOf(whom)
	reply, err := s.Do("CONFIG", "GET", c.name)
	was, ok := pairs(reply)[c.name]
	if err != nil || !ok {
		return nil, fmt.Errorf("%s is %v: %w", c.name, reply, err)
	}
	value := c.values[0]
	if value == was {
		value = c.values[1]
	}
	always := context.WithoutCancel(ctx)
	return func() error {
		if err := doing(s, "CONFIG", "SET", c.name, was)(); err != nil {
			return err
		}
		return awaitInfo(always, s, "persistence", func(info map[string]string) bool { return !rewriting(info) })
	}, doing(s, "CONFIG", "SET", c.name, value)()
}

// rewriting reports that an append-only file is being written anew: until it is, a killed server
// may come back with the one before.
func rewriting(persistence map[string]string) bool {
	return persistence["aof_enabled"] == "1" && (persistence["aof_rewrite_in_progress"] != "0" || persistence["aof_rewrite_scheduled"] != "0")
}

// serverLimit is how long a server may take for what it does at once, on a busy machine.
const serverLimit = 20 * time.Second

// awaitInfo blocks until a section of a server's INFO is as it is to be.
func awaitInfo(ctx context.Context, s *redistest.Server, section string, is func(map[string]string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	return until(ctx, func() error {
		info, err := s.Info(section)
		if err == nil && !is(info) {
			err = fmt.Errorf("%s is not done: %v", s.Addr(), info)
		}
		return err
	})
}

// restoreCopy starts a node with a copy of its data to which writes are lacking that were
// answered.
func restoreCopy(ctx context.Context, it item, p *place) (undo func() error, err error) {
	dir, err := os.MkdirTemp("", "redlatch-torture-copy-")
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, "data")
	undo = func() error { return os.RemoveAll(dir) }
	if !p.durable {
		saving, cancel := context.WithTimeout(ctx, serverLimit)
		defer cancel()
		if err := until(saving, doing(p.server, "SAVE")); err != nil { // it may be saving already
			return undo, leftOutIfEnded(ctx, err)
		}
	}
	if err := p.server.CopyData(copied); err != nil {
		return undo, err
	}
	wait(ctx, it.delay) // for what is not in the copy
	p.server.Kill()
	return func() error {
		return errors.Join(p.server.RestartWith(context.WithoutCancel(ctx), copied), os.RemoveAll(dir))
	}, nil
}

// failbackWay is one way of having a replica promoted and the former master again.
type failbackWay struct {
	lossy bool // the replica lacks the last writes
	led   bool // clients are led to the replica meanwhile
}

func failbackOf(it item) failbackWay { return failbackWay{it.hard, it.whom%2 == 0} }

func (w failbackWay) String() string {
	text := "in agreement"
	if w.lossy {
		text = "the replica is behind"
	}
	if w.led {
		text += ", clients are led to it"
	}
	return text
}

// failBack has a node follow its own replica for a while, and be a master again with what that
// one has. Its process and its connections stay, unless clients are led to the replica.
func (t *torturer) failBack(ctx context.Context, it item, p *place) (undo func() error, err error) {
	way, always := failbackOf(it), context.WithoutCancel(ctx)
	link, err := redistest.StartProxy(p.server.Addr(), redistest.ProxyOptions{})
	if err != nil {
		return nil, err
	}
	replica, err := redistest.StartReplica(ctx, p.server, redistest.Options{ReplicaOf: link.Addr()})
	if err != nil {
		link.Close()
		return nil, leftOutIfEnded(ctx, err)
	}
	if way.lossy {
		link.HoldBack(redistest.Replies, true)
		wait(ctx, it.delay) // for locks that the replica does not hear of
		err = errors.Join(doing(replica, "REPLICAOF", "NO", "ONE")(), follow(p.server, replica))
		link.Cut()
	} else {
		err = swap(always, p.server, replica)
	}
	if way.led {
		gates([]*place{p}, func(g *gate) { g.Retarget(replica.Addr()); g.Cut() })
	}
	if err == nil && way.led && !way.lossy && t.options.ours() && worker.Now() > p.forgot {
		// It has all that the other had, which had forgotten nothing. One that cannot be asked in
		// time waits as others do.
		_ = t.admitNode(ctx, p.name)
	}
	return func() error {
		var err error
		if way.lossy {
			linked, cancel := context.WithTimeout(always, serverLimit)
			defer cancel()
			err = p.server.AwaitLink(linked)
			err = errors.Join(err, doing(p.server, "REPLICAOF", "NO", "ONE")())
		} else {
			err = swap(always, replica, p.server)
		}
		if way.led {
			gates([]*place{p}, func(g *gate) { g.Retarget(p.target); g.Cut() })
		}
		link.Close()
		return errors.Join(err, replica.Close())
	}, err
}

func follow(s, master *redistest.Server) error {
	return doing(s, "REPLICAOF", "127.0.0.1", fmt.Sprint(master.Port()))()
}

// swap has a replica take its master's place in agreement with it, and blocks until the master
// follows it: nothing is lost.
func swap(ctx context.Context, master, replica *redistest.Server) error {
	if err := doing(master, "FAILOVER")(); err != nil {
		return err
	}
	is := func(role string) func(map[string]string) bool {
		return func(info map[string]string) bool { return info["role"] == role }
	}
	if err := awaitInfo(ctx, replica, "replication", is("master")); err != nil {
		return err
	}
	return awaitInfo(ctx, master, "replication", func(info map[string]string) bool {
		return info["role"] == "slave" && info["master_link_status"] == "up"
	})
}

// admit has an operator vouch for a node that has forgotten nothing: it was killed and has its
// data, or it was a replica of nobody for a while. While it is a replica, he is refused.
func (t *torturer) admit(ctx context.Context, it item, p *place) (undo func() error, err error) {
	if !wait(ctx, time.Duration(p.forgot-worker.Now())) { // or nobody could vouch for it
		return nil, fmt.Errorf("%w: %w", errLeftOut, context.Cause(ctx))
	}
	always := context.WithoutCancel(ctx)
	if !it.hard {
		_, err := p.server.Do("REPLICAOF", "127.0.0.1", "1") // where nobody is
		undo := func() error {
			err := doing(p.server, "REPLICAOF", "NO", "ONE")()
			_ = t.admitNode(always, p.name) // or it waits as others do
			return err
		}
		if err == nil && t.tryAdmit(ctx, p.name) == nil {
			err = errors.New("a replica was admitted")
		}
		return undo, err
	}
	if info, err := p.server.Info("persistence"); err != nil || rewriting(info) {
		return nil, fmt.Errorf("%w: its file is being written anew, %v", errLeftOut, err)
	}
	p.server.Kill()
	return func() error {
		err := p.server.Restart(always)
		_ = t.admitNode(always, p.name)
		return err
	}, nil
}

// tryAdmit vouches for a node once.
func (t *torturer) tryAdmit(ctx context.Context, name string) error {
	return operate(t.config(t.options.TTL), func(c *redlatch.Client) error {
		ctx, cancel := context.WithTimeout(ctx, asked)
		defer cancel()
		return c.Admit(ctx, name)
	})
}

// admitLimit is how long an operator tries to admit a node.
const admitLimit = 3 * time.Second

// admitNode vouches for a node until it is admitted.
func (t *torturer) admitNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, admitLimit)
	defer cancel()
	return operate(t.config(t.options.TTL), func(c *redlatch.Client) error {
		return until(ctx, func() error { return c.Admit(ctx, name) })
	})
}
