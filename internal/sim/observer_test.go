package sim_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

// simObserver is the Observer of a program, which judges what it is told, and in which order.
type simObserver struct {
	process *simProcess

	mu sync.Mutex // guards what follows
	// locks are those acquired, by name and token, and how many have not ended: readers may have equal tokens, and
	// the holders of two slots.
	locks map[string]int
	// away has the nodes that cannot be reached, met the runs in quarantine.
	away, met map[string]bool
	closed    bool
}

func newSimObserver(p *simProcess) *simObserver {
	return &simObserver{process: p, locks: make(map[string]int), away: make(map[string]bool), met: make(map[string]bool)}
}

func (o *simObserver) Observe(_ context.Context, event redlatch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expect(!o.closed, event)
	switch e := event.(type) {
	case redlatch.LockAcquired:
		lock := fmt.Sprint(e.Name, e.Token)
		_, known := o.locks[lock]
		shared := o.process.clients.plan.Reads+o.process.clients.plan.Permits > 0
		o.expect((!known || shared) && e.Waited >= e.RoundTrip && (e.Tries > 0) == (e.RoundTrip > 0), e)
		o.locks[lock]++
	case redlatch.LockFailed:
		o.expect(e.Err != nil && e.Waited >= 0, e)
	case redlatch.LockExtended:
		_, known := o.locks[fmt.Sprint(e.Name, e.Token)]
		o.expect(known, e)
	case redlatch.LockNotExtended:
		_, known := o.locks[fmt.Sprint(e.Name, e.Token)]
		o.expect(known && e.Err != nil, e)
	case redlatch.LockLost:
		o.end(fmt.Sprint(e.Name, e.Token), e)
		o.expect(e.Err != nil && e.Held >= 0, e)
	case redlatch.LockReleased:
		o.end(fmt.Sprint(e.Name, e.Token), e)
		o.expect(e.Held >= 0, e)
	case redlatch.NodeUnreachable:
		o.expect(!o.away[e.Node] && e.Err != nil, e)
		o.away[e.Node] = true
	case redlatch.NodeReachable:
		o.expect(o.away[e.Node], e)
		o.away[e.Node] = false
	case redlatch.NodeQuarantined:
		o.met[e.RunID] = true
	case redlatch.NodeAdmitted:
		o.expect(o.met[e.RunID], e)
		o.met[e.RunID] = false
	default:
		o.expect(false, e)
	}
}

// end notes that a lock has ended, as each does once.
func (o *simObserver) end(lock string, event redlatch.Event) {
	o.expect(o.locks[lock] > 0, event)
	o.locks[lock]--
}

// close notes that the client is closed: all locks have ended, and nothing is observed any more.
func (o *simObserver) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for lock, held := range o.locks {
		o.expect(held == 0, lock)
	}
}

// expect has the judge condemn what should not be observed, or a lock whose end was not. The caller
// holds o.mu.
func (o *simObserver) expect(ok bool, what any) {
	if w := o.process.clients.world; !ok && w.Mutation == sim.None {
		w.Judge.Condemn("%s: observed wrongly: %T %+v", o.process.machine.Name, what, what)
	}
}
