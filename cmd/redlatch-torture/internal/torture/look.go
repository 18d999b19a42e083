//go:build linux

package torture

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/judge"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

const (
	// lookEvery is the time from one look to the next. A look has all workers release their locks,
	// and then looks for keys of locks on the nodes.
	lookEvery = 12 * time.Second
	// lookTime is how long a look takes if no worker is slow. lookMargin is a little more than
	// the judge adds to the time during which a key may stay.
	lookTime, lookMargin = time.Second, 300 * time.Millisecond
	// lastLook is how long before the end of the run a lone node is looked at. There are no faults
	// any more then.
	lastLook = 3500 * time.Millisecond
)

// lookOften looks for keys left behind every lookEvery until ctx ends. A lone node may have no time
// without faults except near the end of the run, so it is looked at then. If several servers make
// it up, that is the only look.
func (t *torturer) lookOften(ctx context.Context) {
	var last <-chan time.Time
	if t.options.Topology.alone() {
		last = time.After(t.options.For - lastLook)
	}
	var often <-chan time.Time
	if t.ground.node == nil {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		often = ticker.C
	}
	for {
		select {
		case <-often:
			t.look(ctx)
		case <-last:
			t.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// look has all workers release their locks, looks for keys, and lets the workers work again. It does not
// wait for workers that are stopped or starved: their logs tell the judge which keys may be theirs.
func (t *torturer) look(ctx context.Context) {
	t.resting <- struct{}{}
	defer func() { <-t.resting }()
	workers := t.workers[:t.options.Workers]
	var told []*life
	for _, w := range workers {
		l := w.now()
		for len(l.rested) > 0 {
			<-l.rested // the answer to an earlier look, which did not wait for it
		}
		_ = l.Tell(worker.Rest) // fails if the process has ended, and then watch replaces it
		if !w.slow() {
			told = append(told, l)
		}
	}
	limit := time.After(2 * time.Second)
	for _, l := range told {
		select {
		case <-l.rested:
		case <-l.Exited:
		case <-limit:
		case <-ctx.Done():
		}
	}
	wait(ctx, judge.Grace)
	if ctx.Err() == nil {
		t.count(ctx)
	}
	for _, w := range workers {
		_ = w.now().Tell(worker.Go)
	}
}

// count looks for the locks' keys on all nodes without a fault, and adds what it found to t.looks.
func (t *torturer) count(ctx context.Context) {
	if t.ground.node != nil {
		t.countComposed(ctx)
		return
	}
	found := make([][]history.Look, len(t.ground.nodes))
	var asking sync.WaitGroup
	for i, p := range t.ground.nodes {
		select {
		case p.turn <- struct{}{}:
		default:
			continue
		}
		asking.Go(func() {
			defer func() { <-p.turn }()
			found[i] = t.ask(i, p)
		})
	}
	asking.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range found {
		t.looks = append(t.looks, f...)
	}
}

// ask looks for the locks' keys on a node. The caller holds the node's turn.
func (t *torturer) ask(i int, p *place) []history.Look {
	conn, err := p.dial(context.Background())
	if err != nil {
		return nil // a node that cannot be reached is left out
	}
	defer conn.Close()
	var looks []history.Look
	for name, key := range t.options.keys() {
		reply, err := conn.Do("PTTL", key)
		left, ok := reply.(int64)
		if err != nil || !ok {
			return looks
		}
		looks = append(looks, history.Look{
			At: worker.Now(), Node: i + 1, Name: name, Found: left != -2, Left: time.Duration(left) * time.Millisecond,
		})
	}
	return looks
}

// dial connects to the node without a proxy, so that no fault of the network concerns it.
func (p *place) dial(ctx context.Context) (*redistest.Conn, error) {
	if p.server != nil {
		return p.server.Dial(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o, _, err := redisconn.Parse(p.url.String())
	if err != nil {
		return nil, err
	}
	conn, err := redistest.Dial(ctx, p.url.Host)
	if err != nil {
		return nil, err
	}
	var login [][]string
	if o.Password != "" {
		login = append(login, []string{"AUTH", cmp.Or(o.Username, "default"), o.Password})
	}
	if o.Database != 0 {
		login = append(login, []string{"SELECT", strconv.Itoa(o.Database)})
	}
	for _, command := range login {
		if _, err := conn.Do(command...); err != nil {
			conn.Close()
			return nil, fmt.Errorf("%s: %w", command[0], err)
		}
	}
	return conn, nil
}
