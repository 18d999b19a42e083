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

// doing returns a function that sends a command to a server.
func doing(s *redistest.Server, command ...string) func() error {
	return func() error {
		_, err := s.Do(command...)
		return err
	}
}

// attachReplica starts a replica of a node, and undo ends it.
func attachReplica(ctx context.Context, p *place) (undo func() error, err error) {
	replica, err := redistest.StartReplica(ctx, p.server, redistest.Options{})
	if err != nil {
		return nil, leftOutIfEnded(ctx, err)
	}
	return replica.Close, nil
}

// leftOutIfEnded returns an errLeftOut if ctx has ended, since that may be the reason of err, else err.
func leftOutIfEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errLeftOut, context.Cause(ctx))
	}
	return err
}

// changeable is a setting that can be changed while a server runs.
type changeable struct {
	name   string
	values [2]string // the new value is the first of these, or the second if the setting has the first
}

var changeables = []changeable{
	{"appendonly", [2]string{"yes", "no"}},
	{"appendfsync", [2]string{"everysec", "no"}},
	{"save", [2]string{"1 1", ""}},
	{"maxmemory-policy", [2]string{"allkeys-lru", "noeviction"}},
}

func changeableOf(whom int) changeable { return changeables[whom%len(changeables)] }

// disturb carries out the faults that are the same for a server in every topology.
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

// changeSetting changes one setting of a server. undo changes it back, and blocks until the server has
// rewritten its append-only file if it needs to.
func changeSetting(ctx context.Context, s *redistest.Server, whom int) (undo func() error, err error) {
	c := changeableOf(whom)
	reply, err := s.Do("CONFIG", "GET", c.name)
	if err != nil {
		return nil, fmt.Errorf("CONFIG GET %s: %w", c.name, err)
	}
	was, ok := pairs(reply)[c.name]
	if !ok {
		return nil, fmt.Errorf("CONFIG GET %s: the reply is %v", c.name, reply)
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

// rewriting reports whether a server is rewriting its append-only file. Until that is done, a killed
// server may come back with the data of an earlier file.
func rewriting(persistence map[string]string) bool {
	return persistence["aof_enabled"] == "1" && (persistence["aof_rewrite_in_progress"] != "0" || persistence["aof_rewrite_scheduled"] != "0")
}

// serverLimit is how long a server may take on a busy machine for what usually takes a moment.
const serverLimit = 20 * time.Second

// awaitInfo blocks until is returns true for a section of a server's INFO.
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

// restoreCopy kills a server, and undo starts it with an earlier copy of its data. The copy lacks the
// last writes, which the server had confirmed.
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
		if err := until(saving, doing(p.server, "SAVE")); err != nil { // fails while another save runs
			return undo, leftOutIfEnded(ctx, err)
		}
	}
	if err := p.server.CopyData(copied); err != nil {
		return undo, err
	}
	wait(ctx, it.delay) // so that there are writes that are not in the copy
	p.server.Kill()
	return func() error {
		return errors.Join(p.server.RestartWith(context.WithoutCancel(ctx), copied), os.RemoveAll(dir))
	}, nil
}

// failbackWay is one way of promoting a replica and then the former master again.
type failbackWay struct {
	lossy bool // the replica lacks the last writes
	led   bool // in between the clients' connections lead to the replica
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

// failBack promotes a replica of the node's server and has the server replicate it for a while. Then undo
// promotes the server again, which now has the replica's data. The server's process goes on, and
// so do its connections unless clients are led to the replica.
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
		wait(ctx, it.delay) // so that there are locks that the replica does not know
		err = errors.Join(doing(replica, "REPLICAOF", "NO", "ONE")(), follow(p.server, replica))
		link.Cut()
	} else {
		err = swap(always, p.server, replica)
	}
	if way.led {
		gates([]*place{p}, func(g *gate) { g.Retarget(replica.Addr()); g.Cut() })
	}
	if err == nil && way.led && !way.lossy && t.options.ours() && worker.Now() > p.forgot {
		// The replica has all data of the server, which had forgotten nothing. So an operator may admit it.
		// If that fails, it votes after the quarantine.
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

// follow makes s a replica of master.
func follow(s, master *redistest.Server) error {
	return doing(s, "REPLICAOF", "127.0.0.1", fmt.Sprint(master.Port()))()
}

// swap promotes a replica in agreement with its master (FAILOVER), so that no write is lost. It blocks
// until the former master replicates it.
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

// admit has an operator admit a node that has forgotten nothing: either it was killed and has its
// data, or it was a replica of nobody for a while. While it is a replica, admitting it must fail.
func (t *torturer) admit(ctx context.Context, it item, p *place) (undo func() error, err error) {
	if !wait(ctx, time.Duration(p.forgot-worker.Now())) { // an operator must not admit it before
		return nil, fmt.Errorf("%w: %w", errLeftOut, context.Cause(ctx))
	}
	always := context.WithoutCancel(ctx)
	if !it.hard {
		_, err := p.server.Do("REPLICAOF", "127.0.0.1", "1") // no server listens there
		undo := func() error {
			err := doing(p.server, "REPLICAOF", "NO", "ONE")()
			_ = t.admitNode(always, p.name) // if this fails, it votes after the quarantine
			return err
		}
		if err == nil && t.tryAdmit(ctx, p.name) == nil {
			err = errors.New("a replica was admitted")
		}
		return undo, err
	}
	info, err := p.server.Info("persistence")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLeftOut, err)
	}
	if rewriting(info) {
		return nil, fmt.Errorf("%w: its append-only file is being rewritten", errLeftOut)
	}
	p.server.Kill()
	return func() error {
		err := p.server.Restart(always)
		_ = t.admitNode(always, p.name)
		return err
	}, nil
}

// tryAdmit tries once to admit a node.
func (t *torturer) tryAdmit(ctx context.Context, name string) error {
	return operate(t.config(t.options.TTL), func(c *redlatch.Client) error {
		ctx, cancel := context.WithTimeout(ctx, asked)
		defer cancel()
		return c.Admit(ctx, name)
	})
}

// admitLimit is how long an operator tries to admit a node.
const admitLimit = 3 * time.Second

// admitNode tries to admit a node until it is admitted or admitLimit is over.
func (t *torturer) admitNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, admitLimit)
	defer cancel()
	return operate(t.config(t.options.TTL), func(c *redlatch.Client) error {
		return until(ctx, func() error { return c.Admit(ctx, name) })
	})
}
