package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/sim"
)

// simLeading is what the leaders and the observers of a world have seen.
type simLeading struct {
	mu sync.Mutex // guards what follows; nothing is called while it is held
	// terms has the token of each leader by its holder id; again counts those that follow a lost
	// one of the same campaign.
	terms map[string]uint64
	again int
	// seen are the holder ids that each range of an observer was yielded, but for nobody.
	seen [][]string
}

// campaign has the worker be a candidate for one name after the other.
func (w *simWorker) campaign(over <-chan struct{}) {
	p, plan := w.process, w.process.clients.plan
	for w.think(plan, over) {
		name := plan.Names[w.rng.IntN(len(plan.Names))]
		w.calls++
		label := fmt.Sprintf("%s-%d", w.name, w.calls)
		patience := w.between(0, 4*plan.Quarantine())
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errGivenUp)
		ended := make(chan struct{})
		go func() {
			select {
			case <-over:
				cancel()
			case <-ended:
			}
		}()
		terms := 0
		err := p.client.Campaign(ctx, name, func(ctx context.Context) error {
			w.run()
			terms++
			w.lead(ctx, name, label, terms)
			return ctx.Err()
		}, redlatch.WithTTL(plan.TTL), redlatch.WithLabel(label))
		close(ended)
		cancel()
		w.run()
		p.clients.world.Over(label)
		p.clients.world.History.Add(p.machine.Name, "%s has campaigned for %s: %v", label, name, err)
	}
}

// lead is one term.
func (w *simWorker) lead(ctx context.Context, name, label string, term int) {
	p, plan := w.process, w.process.clients.plan
	l := p.clients.leading
	lease := hook.LeaseOf(ctx)
	l.mu.Lock()
	l.terms[lease.HolderID()] = lease.Token()
	if term > 1 {
		l.again++
	}
	l.mu.Unlock()
	holding := p.acquiredIn(ctx, name, label)
	select {
	case <-ctx.Done():
	case <-time.After(w.between(0, 3*plan.MaxTTL)):
	}
	// The work goes on for a while, though its ctx may be done.
	time.Sleep(w.between(1, plan.TTL/20))
	w.run()
	if err := lease.Err(); errors.Is(err, redlatch.ErrReleased) {
		p.clients.world.Judge.Condemn("a lead is released when its work has returned: that of %s for %s: %v", label, name, err)
	}
	holding.Ended()
}

// observe has the worker observe one name after the other.
func (w *simWorker) observe(over <-chan struct{}) {
	p, plan := w.process, w.process.clients.plan
	for w.think(plan, over) {
		ctx, cancel := context.WithTimeout(context.Background(), w.between(0, 4*plan.Quarantine()))
		ended := make(chan struct{})
		go func() {
			select {
			case <-over:
				cancel()
			case <-ended:
			}
		}()
		var seen []string
		for holder, err := range p.client.Observe(ctx, plan.Names[w.rng.IntN(len(plan.Names))]) {
			if w.run(); err == nil && holder.ID != "" {
				seen = append(seen, holder.ID)
			}
			p.clients.world.History.Add(p.machine.Name, "%s is told of %v, %v", w.name, holder, err)
			if w.chance(2) {
				break
			}
		}
		close(ended)
		cancel()
		l := p.clients.leading
		l.mu.Lock()
		l.seen = append(l.seen, seen)
		l.mu.Unlock()
	}
}

// back returns the first leader that an observer was told after a later one.
func (l *simLeading) back() (before, after string) {
	for _, seen := range l.seen {
		last := ""
		for _, id := range seen {
			if token, led := l.terms[id]; led {
				if last != "" && token < l.terms[last] {
					return last, id
				}
				last = id
			}
		}
	}
	return "", ""
}

// In worlds in which nodes, machines and the network fail, at most one leads, a lead is released
// when its work has returned, and no observer is told an earlier leader after a later one.
func TestSimLeading(t *testing.T) {
	t.Parallel()
	if !serially(t) {
		return
	}
	worlds := partOr(220, 44)
	skies := []string{"calm", "lossy", "servers", "processes", "clocks", "tight", "torn", "storm", "alone", "roles", "durable"}
	terms, again, told := 0, 0, 0
	for seed := range uint64(worlds) {
		l := &simLeading{terms: make(map[string]uint64)}
		sky := skies[int(seed)%len(skies)]
		var verdicts []string
		var history strings.Builder
		clean()
		synctest.Test(t, func(*testing.T) {
			w := sim.New(seed+1, sim.None)
			clients := &simClients{world: w, plan: sim.NewPlan(w, sky), leading: l}
			clients.live()
			w.End()
			verdicts = w.Judge.Verdicts()
			if before, after := l.back(); after != "" {
				verdicts = append(verdicts, fmt.Sprintf("an observer does not go back: %s with token %d is told after %s with token %d", after, l.terms[after], before, l.terms[before]))
			}
			if len(verdicts) > 0 {
				w.History.Print(&history)
			}
		})
		for _, v := range verdicts {
			t.Errorf("world %d, %s: %s", seed+1, sky, v)
		}
		if t.Failed() {
			t.Log(outcome{history: history.String()}.keep(seed + 1))
			return
		}
		terms, again = terms+len(l.terms), again+l.again
		for _, seen := range l.seen {
			told += len(seen)
		}
	}
	t.Logf("%d worlds, %d terms, of which %d after a loss; observers were told of %d", worlds, terms, again, told)
	if terms < 10*worlds || again < worlds/10 || told < 10*worlds {
		t.Error("that is too little to show anything")
	}
}
