//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// alone returns a torturer of one node, which keeps its data on disk and was admitted.
func alone(t *testing.T) (*torturer, *place) {
	t.Helper()
	if len(redistest.Flavors()) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	o := Options{Topology: Single, Nodes: 1, Names: 1, TTL: time.Second, prefix: "torture", WorkerCommand: []string{"self", WorkerCommand}, Out: io.Discard}
	g, err := startGround(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.close() })
	if err := vouch(t.Context(), &o, g); err != nil {
		t.Fatal(err)
	}
	return &torturer{ground: g, options: o, records: make(chan struct{}, 1)}, g.nodes[0]
}

// ask sends a command to a node and returns its reply as text.
func ask(t *testing.T, p *place, command ...string) string {
	t.Helper()
	reply, err := p.server.Do(command...)
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return fmt.Sprint(reply)
}

// increased increments a counter on the server until that fails or ctx ends, and returns the last number
// that the server answered.
func increased(ctx context.Context, p *place) (last int64) {
	for ctx.Err() == nil {
		reply, err := p.server.Do("INCR", "n")
		n, ok := reply.(int64)
		if err != nil || !ok {
			return last
		}
		last = n
	}
	return last
}

// After a fault was undone, the server is a master. It is the same process unless the fault kills it, and
// it has lost its last writes only if the fault is to lose them.
func TestActsOnServers(t *testing.T) {
	for name, tt := range map[string]struct {
		it          item
		loses, dies bool
	}{
		"failback in agreement":                     {it: item{kind: failback, whom: 1}},
		"failback in agreement, clients led":        {it: item{kind: failback}},
		"failback, behind":                          {it: item{kind: failback, whom: 1, hard: true}, loses: true},
		"failback, behind, clients led":             {it: item{kind: failback, hard: true}, loses: true},
		"restore":                                   {it: item{kind: restore}, loses: true, dies: true},
		"admit of what was killed":                  {it: item{kind: admit, hard: true}, dies: true},
		"admit of what is a replica, then a master": {it: item{kind: admit}},
		"settings":                                  {it: item{kind: settings}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			torturer, p := alone(t)
			tt.it.delay = 200 * time.Millisecond
			pid := p.server.PID()
			ask(t, p, "INCR", "n")
			ctx, cancel := context.WithCancel(t.Context())
			came := make(chan int64, 1)
			go func() { came <- increased(ctx, p) }()
			undo, err := torturer.begin(t.Context(), tt.it, []*place{p}, nil)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			last := <-came
			if err := undo(); err != nil {
				t.Fatal(err)
			}
			info, err := p.server.Info()
			if err != nil || info["role"] != "master" || (p.server.PID() != pid) != tt.dies {
				t.Errorf("afterwards it is a %s, process %d of %d, %v", info["role"], p.server.PID(), pid, err)
			}
			n := int64(0)
			if reply, err := p.server.Do("INCRBY", "n", "0"); err == nil {
				n, _ = reply.(int64)
			}
			if n == 0 || (n < last) != tt.loses {
				t.Errorf("it had %d, and has %d", last, n)
			}
			marker := ask(t, p, "GET", node.DeploymentKeys("torture")[0])
			if tt.it.kind == admit && !strings.Contains(marker, info["run_id"]+" "+info["master_replid"]) {
				t.Errorf("not admitted: it is %s %s, and has %q", info["run_id"], info["master_replid"], marker)
			}
		})
	}
}

// Nobody admits a node while it may have forgotten something.
func TestOperatorsWait(t *testing.T) {
	torturer, p := alone(t)
	p.forgot = worker.Now() + int64(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := torturer.begin(ctx, item{kind: admit}, []*place{p}, nil); !errors.Is(err, errLeftOut) {
		t.Errorf("admitted, %v", err)
	}
	ask(t, p, "FLUSHALL")
	undo, err := torturer.begin(t.Context(), item{kind: failback}, []*place{p}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if marker := node.DeploymentKeys("torture")[0]; ask(t, p, "EXISTS", marker) != "0" {
		t.Error("admitted at its replica")
	}
}

// Each setting changes, and is changed back by undo.
func TestChangeSetting(t *testing.T) {
	_, p := alone(t)
	for i, c := range changeables {
		before := ask(t, p, "CONFIG", "GET", c.name)
		undo, err := changeSetting(t.Context(), p.server, i)
		if err != nil {
			t.Fatal(err)
		}
		if ask(t, p, "CONFIG", "GET", c.name) == before {
			t.Errorf("%s is still %s", c.name, before)
		}
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		if now := ask(t, p, "CONFIG", "GET", c.name); now != before {
			t.Errorf("%s is %s, and was %s", c.name, now, before)
		}
	}
}

// A node refuses strangers, and refuses a client with the former MaxTTL while it has another one.
func TestSetAndStrangers(t *testing.T) {
	torturer, p := alone(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	refused := func(c redlatch.Config) bool {
		err := operate(c, func(c *redlatch.Client) error {
			for {
				lock, err := c.TryLock(ctx, "x")
				if err == nil {
					return lock.Unlock(ctx)
				}
				if errors.Is(err, redlatch.ErrInvalid) || ctx.Err() != nil {
					return err
				}
			}
		})
		if err != nil && !errors.Is(err, redlatch.ErrInvalid) {
			t.Fatal(err)
		}
		return err != nil
	}
	c := torturer.config(torturer.options.TTL)
	for i, s := range strangers[:len(strangers)-1] { // the last one needs several nodes
		other := c
		strangerOf(i).change(&other)
		if !refused(other) {
			t.Errorf("%s: not refused", s.name)
		}
	}
	if refused(c) {
		t.Error("a client of the deployment is refused")
	}
	undo, err := torturer.begin(ctx, item{kind: setOne, delay: torturer.options.TTL * 3 / 2}, []*place{p}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !refused(c) {
		t.Error("MaxTTL was not changed")
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if refused(c) {
		t.Error("MaxTTL was not changed back")
	}
}

// Sentinels promote the former master again, which is still the same process.
func TestSentinelsFailBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	if len(redistest.Flavors()) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	w, err := startWatched(t.Context(), redistest.Flavors()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	it := item{kind: failback, part: 1}
	if err := w.ready(ctx, it); err != nil {
		t.Fatal(err)
	}
	before := w.run(ctx, 1)
	_, undo, err := w.begin(ctx, it)
	if err != nil {
		t.Fatal(err)
	}
	if between := w.run(ctx, 1); between == before {
		t.Errorf("%s is the master still", before)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if after := w.run(ctx, 1); after != before {
		t.Errorf("the master is %s, and was %s", after, before)
	}
}

// With half-open the server has closed all connections, that of a client which waits for its messages too.
func TestHalfOpen(t *testing.T) {
	torturer, p := alone(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var clients [2]*redlatch.Client
	for i := range clients {
		client, err := redlatch.Open(torturer.config(torturer.options.TTL))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		clients[i] = client
	}
	if _, err := clients[0].Lock(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	waiting, give := context.WithCancel(ctx)
	waited := make(chan error, 1)
	go func() {
		_, err := clients[1].Lock(waiting, "a")
		waited <- err
	}()
	subscribed := func() error {
		list := ask(t, p, "CLIENT", "LIST", "TYPE", "pubsub")
		if list == "" {
			return errors.New("nobody has subscribed")
		}
		return nil
	}
	if err := until(ctx, subscribed); err != nil {
		t.Fatal(err)
	}
	undo, err := torturer.begin(ctx, item{kind: halfOpen}, []*place{p}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if list := ask(t, p, "CLIENT", "LIST"); strings.Count(list, "\n") != 1 { // of the connection that asks
		t.Errorf("the server still has connections:\n%s", list)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	give()
	<-waited
}
