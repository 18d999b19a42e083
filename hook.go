package redlatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

func init() {
	hook.Open = func(config any, around hook.Surroundings) (any, error) {
		c, err := open(config.(Config), around)
		if err != nil {
			return nil, fmt.Errorf("redlatch: %w", err)
		}
		return c, nil
	}
	hook.LeaseOf = func(lockOrContext any) hook.Lease {
		if ctx, ok := lockOrContext.(*lockContext); ok {
			return watched{ctx.lock}
		}
		return watched{lockOrContext.(*Lock)}
	}
	hook.ClientOf = func(client any) hook.Client { return inside{client.(*Client)} }
	hook.Patients = func(config any, names []string) ([]hook.Patient, []string, time.Duration, error) {
		return patients(config.(Config), names)
	}
}

// watched is a lock with what the judges of the tests ask of it.
type watched struct{ *Lock }

func (w watched) HolderID() string        { return w.lease.ID() }
func (w watched) End() clock.Instant      { return w.lease.Until().Add(-w.call.settings.guard) }
func (w watched) Deadline() clock.Instant { return w.lease.Until() }

// inside is a client as package oneshot uses it.
type inside struct{ c *Client }

func (i inside) Enter() (leave func(), err error) {
	if err := i.c.enter(); err != nil {
		return nil, err
	}
	if err = i.c.usable(); err != nil {
		i.c.calls.Done()
		return nil, err
	}
	return i.c.calls.Done, nil
}

func (i inside) Key(name string) (string, error) { return i.c.config.key(name) }
func (i inside) WholeTTL(ttl time.Duration) (time.Duration, error) {
	return wholeTTL("ttl", ttl, i.c.config.MaxTTL)
}
func (i inside) NoQuarantine() bool                { return i.c.config.NoQuarantine }
func (i inside) NodeTimeout() time.Duration        { return i.c.config.NodeTimeout }
func (i inside) Answers(answers []vote.Answer) any { return i.c.answers(answers) }
func (i inside) Holder(id string) any              { return parseHolder(id) }
func (i inside) Failure(op, name string, answers []vote.Answer) error {
	return newQuorumError(op, name, i.c.answers(answers))
}

func (i inside) Lose(id string) {
	i.c.mu.Lock()
	held := slices.Collect(maps.Keys(i.c.held))
	i.c.mu.Unlock()
	for _, l := range held {
		if l.lease.ID() == id {
			l.lose(errImpossible)
		}
	}
}

func (i inside) Nodes() []hook.OneShotNode {
	nodes := make([]hook.OneShotNode, len(i.c.nodes))
	for k, n := range i.c.nodes {
		nodes[k] = n.(hook.OneShotNode)
	}
	return nodes
}

func (i inside) Put(ctx context.Context, p quorum.Poll) (granted bool, answers []vote.Answer) {
	return i.c.engine.Put(ctx, p)
}

// patients is hook.Patients.
func patients(config Config, names []string) (patients []hook.Patient, keys []string, connect time.Duration, err error) {
	config, endpoints, err := config.complete()
	if err != nil {
		return nil, nil, 0, err
	}
	keys = make([]string, len(names))
	for i, name := range names {
		if keys[i], err = config.key(name); err != nil {
			return nil, nil, 0, err
		}
	}
	census := censusOf(endpoints)
	for i, e := range endpoints {
		p := hook.Patient{Name: e.name, User: e.options.Username}
		conn, err := e.dial()
		if err != nil {
			for _, p := range patients {
				p.Close()
			}
			return nil, nil, 0, invalid("Config.Nodes[%d]: %w", i, err)
		}
		o := config.nodeOptions(i, e, census)
		o.Replicas = config.Replicas.ofNode()
		if e.cluster {
			p.Cluster, p.Seeds, p.Dial = node.NewCluster(conn, o), e.options.Addresses(), e.member
		} else {
			p.Node = node.New(conn, o)
		}
		patients = append(patients, p)
	}
	return patients, keys, connectTimeout(config.NodeTimeout), nil
}
