package quorum

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// deaf is a node that answers an acquire step after a time, whatever becomes of the step's
// ctx: as one does whose steps go in a batch. Nothing of it is waited for after that.
type deaf struct {
	after    time.Duration
	granted  uint64
	confirms time.Duration

	mu  sync.Mutex // guards did
	did []string
}

func (d *deaf) note(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.did = append(d.did, step)
}

func (d *deaf) steps() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.did)
}

func (d *deaf) Acquire(_ context.Context, c vote.Acquire) vote.Answer {
	token := c.Proposed
	if c.ID != "before" {
		time.Sleep(d.after)
		token = max(d.granted, token)
	}
	d.note("acquire " + c.ID)
	return vote.Answer{Verdict: vote.Granted, Counter: token, Transferred: c.From != ""}
}

func (d *deaf) Confirm(context.Context, vote.Confirm) vote.Answer {
	time.Sleep(d.confirms)
	return vote.Answer{Verdict: vote.Granted}
}

func (d *deaf) Release(_ context.Context, c vote.Release) vote.Answer {
	d.note("release " + c.ID)
	return vote.Answer{Verdict: vote.Granted}
}

func (d *deaf) Extend(context.Context, vote.Extend) vote.Answer { return vote.Answer{} }
func (d *deaf) Repair(context.Context, vote.Extend) vote.Answer { return vote.Answer{} }

// What is decided later than the quarantine counts on is no lock, and is undone, however
// long it would be valid: on one node and on three, in one round and in two, where the
// machine slept, and where the lock was transferred.
func TestNoAttemptOutlastsTheQuarantine(t *testing.T) {
	t.Parallel()
	const longest = vote.LongestAttempt
	for name, c := range map[string]struct {
		nodes       int
		after       time.Duration
		confirms    time.Duration // 0: no second round
		asleep      time.Duration
		transferred bool
		held        bool
	}{
		"one node, in time":         {nodes: 1, after: longest - 1, held: true},
		"one node, late":            {nodes: 1, after: longest},
		"three nodes, in time":      {nodes: 3, after: longest - 1, held: true},
		"three nodes, late":         {nodes: 3, after: longest + time.Second},
		"second round, in time":     {nodes: 3, after: time.Second, confirms: time.Second - 1, held: true},
		"second round, late":        {nodes: 3, after: time.Second, confirms: time.Second},
		"asleep, in time":           {nodes: 3, after: time.Second, asleep: time.Second - 1, held: true},
		"asleep, late":              {nodes: 3, after: time.Second, asleep: time.Second},
		"transferred in time":       {nodes: 3, after: longest - 1, transferred: true, held: true},
		"transferred late":          {nodes: 3, after: longest, transferred: true},
		"transferred late, 1 node":  {nodes: 1, after: longest, transferred: true},
		"transferred after a sleep": {nodes: 1, after: time.Second, asleep: time.Second, transferred: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes, v := make([]*deaf, c.nodes), make([]Voter, c.nodes)
				for i := range nodes {
					nodes[i] = &deaf{after: c.after, confirms: c.confirms}
					if c.confirms > 0 {
						nodes[i].granted = 1e18 + uint64(i)
					}
					v[i] = nodes[i]
				}
				machine := newBubbleClock()
				e := New(v, machine, time.Second)
				transfers := NewTransfers(e, time.Minute)
				defer e.Close()
				var before *Lease
				if c.transferred {
					before, _ = e.Acquire(t.Context(), requestOf("before"))
				}
				if c.asleep > 0 {
					time.AfterFunc(time.Millisecond, func() { machine.suspend(c.asleep) })
				}
				var lease *Lease
				if c.transferred {
					transfers.Transfer(before, requestOf("mine"), func(next *Lease) { lease = next })
				} else {
					lease, _ = e.Acquire(t.Context(), requestOf("mine"))
				}
				if (lease != nil) != c.held {
					t.Errorf("held is %t", lease != nil)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for i, n := range nodes {
					if undone := slices.Contains(n.steps(), "release mine"); undone == c.held {
						t.Errorf("node %d did %v", i, n.steps())
					}
				}
				if lease != nil {
					lease.Release()
				}
			})
		})
	}
}
