package quorum

import (
	"context"
	"testing"

	"github.com/redlatch/redlatch/internal/vote"
)

// pair is a node that has two keys, as a server for either. An attempt for both is granted by both or by
// none.
type pair struct {
	Voter // of the second key
	first *server
	last  *server
}

func (p pair) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	second := r
	second.From = (*r.Froms)[0]
	p.first.mu.Lock()
	p.last.mu.Lock()
	a, b := p.first.present(), p.last.present()
	reachable := !p.first.down && !p.first.lost && !p.first.deaf
	p.last.mu.Unlock()
	p.first.mu.Unlock()
	free := (a == "" || a == r.From) && (b == "" || b == second.From)
	if reachable && !free {
		return vote.Answer{Verdict: vote.Held, Holder: a + b}
	}
	if answer := p.first.Acquire(ctx, r); answer.Verdict != vote.Granted {
		return answer
	}
	return p.last.Acquire(ctx, second)
}

func (p pair) Release(ctx context.Context, r vote.Release) vote.Answer {
	p.first.Release(ctx, r)
	return p.last.Release(ctx, r)
}

// Every mask of what may have happened to one of two keys: the attempt for both holds when a quorum has
// granted it, under a token above those of the leases, what is another's stays, and of leases and attempt
// nothing is left where it failed.
func TestTakeOverOfSeveral(t *testing.T) {
	t.Parallel()
	everyMask(t, 1, severalOnce)
}

func severalOnce(t *testing.T, mask []loss) {
	t.Helper()
	nodes, name, e, first, end := heldBefore(t, mask, "first")
	defer end()
	others := make([]*server, len(mask))
	for i := range others {
		others[i] = newServer()
		defer others[i].close()
	}
	beside := New(voters(others), newBubbleClock(), stepTime)
	defer beside.Close()
	last := acquired(t, beside, "last")
	rest()
	grants := 0
	for i, l := range mask {
		nodes[i].set(l.set)
		e.voters[i] = pair{others[i], nodes[i], others[i]}
		if l.name == "down" || l.name == "hung" { // both keys are on one node
			others[i].set(l.set)
		} else if id := nodes[i].holder(); id == "first" || id == "" {
			grants++
		}
	}
	// The leases release by their own engines, whose nodes have the one key.
	first.engine, last.engine = New(voters(nodes), newBubbleClock(), stepTime), beside
	defer first.engine.Close()

	request := requestOf("all")
	froms := []string{"last"}
	request.From, request.Froms = "first", &froms
	next, answers := e.TakeOver(t.Context(), request, []*Lease{first, last})
	if want := grants >= Majority(len(mask)); (next != nil) != want {
		t.Errorf("%s: held %t, %d nodes can grant it: %v", name, next != nil, grants, answers)
	}
	if next != nil && (next.Token() <= first.Token() || next.Token() <= last.Token()) {
		t.Errorf("%s: token %d follows %d and %d", name, next.Token(), first.Token(), last.Token())
	}
	for _, l := range []*Lease{first, last} {
		if _, ok := l.Release(); ok {
			t.Errorf("%s: a lease was not over", name)
		}
	}
	rest()
	rest()
	for i, l := range mask {
		if l.name == "down" || l.name == "hung" {
			continue // no message reaches it
		}
		a, b := nodes[i].holder(), others[i].holder()
		switch {
		case l.name == "another's":
			if a != theirs || b != "" {
				t.Errorf("%s: node %d has %q and %q", name, i, a, b)
			}
		case next != nil && (a != "all" || b != "all"), next == nil && (a != "" || b != ""):
			t.Errorf("%s: node %d has %q and %q, and the attempt held: %t", name, i, a, b, next != nil)
		}
	}
	if next != nil {
		next.Release()
		rest()
	}
}
