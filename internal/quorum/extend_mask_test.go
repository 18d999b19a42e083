package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/vote"
)

// loss is what happened to a held lock's key on one node before an
// extension.
type loss struct {
	name string
	set  func(s *server)
	yes  bool // it extends
	gone bool // it says that it has no key of ours
	// repaired: the key is given back when a quorum extends.
	repaired bool
}

func losses() []loss {
	return []loss{
		{name: "kept", set: func(*server) {}, yes: true},
		{name: "lost", set: func(s *server) { s.id = "" }, gone: true, repaired: true},
		{name: "another's", set: func(s *server) { s.id, s.expires = theirs, time.Time{} }, gone: true},
		{name: "had another's", set: func(s *server) { s.id = ""; s.counter += 1000 }, gone: true},
		{name: "down", set: func(s *server) { s.down = true }},
		{name: "hung", set: func(s *server) { s.lost = true }},
	}
}

// Every mask of what may have happened to the keys: extended by a quorum
// only, impossible as soon as it is, repaired only after a quorum and only
// where nobody else has been.
func TestExtendEveryMask(t *testing.T) {
	t.Parallel()
	everyMask(t, 1, extendOnce((*Lease).Extend))
}

func TestExtendBatchEveryMask(t *testing.T) {
	t.Parallel()
	everyMask(t, 1, extendOnce(func(l *Lease, _ context.Context, ttl time.Duration) (Extension, []vote.Answer) {
		batch := []renewal{{lease: l, ttl: ttl}}
		l.engine.extendBatch(context.Background(), batch, 2*stepTime)
		return batch[0].end, batch[0].answers
	}))
}

// fates calls f with everything that may have happened to n nodes: in every
// order for n up to 3, in a random one for more.
func fates(n int, rng *rand.Rand, f func(mask []loss)) {
	of := losses()
	var fill func(chosen []loss, from int)
	fill = func(chosen []loss, from int) {
		if len(chosen) == n {
			mask := slices.Clone(chosen)
			if n > 3 {
				rng.Shuffle(n, func(i, j int) { mask[i], mask[j] = mask[j], mask[i] })
			}
			f(mask)
			return
		}
		for i := from; i < len(of); i++ {
			next := i
			if n <= 3 {
				next = 0
			}
			fill(append(chosen[:len(chosen):len(chosen)], of[i]), next)
		}
	}
	fill(nil, 0)
}

// everyMask has once try every mask of losses on least nodes and more, until one fails.
func everyMask(t *testing.T, least int, once func(t *testing.T, mask []loss)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for n := least; n <= mostNodes(); n++ {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fates(n, rng, func(mask []loss) {
					if !t.Failed() {
						once(t, mask)
					}
				})
			})
		})
	}
}

// heldBefore returns nodes that all have the key of a lease under id, to which mask is to
// happen, and what the mask is called. end ends them.
func heldBefore(t *testing.T, mask []loss, id string) (nodes []*server, name string, e *Engine, lease *Lease, end func()) {
	t.Helper()
	var names []string
	for _, l := range mask {
		nodes = append(nodes, newServer())
		names = append(names, l.name)
	}
	e = New(voters(nodes), newBubbleClock(), stepTime)
	NewTransfers(e, time.Minute)
	lease = acquired(t, e, id)
	rest()
	return nodes, strings.Join(names, " "), e, lease, func() {
		e.Close()
		for _, s := range nodes {
			s.close()
		}
	}
}

// extendOnce has the keys extended after each mask of losses.
func extendOnce(extend func(*Lease, context.Context, time.Duration) (Extension, []vote.Answer)) func(t *testing.T, mask []loss) {
	return func(t *testing.T, mask []loss) {
		t.Helper()
		extendAfter(t, mask, extend)
	}
}

func extendAfter(t *testing.T, mask []loss, extend func(*Lease, context.Context, time.Duration) (Extension, []vote.Answer)) {
	t.Helper()
	need := Majority(len(mask))
	nodes := make([]*server, len(mask))
	name, yes, gone := "", 0, 0
	for i, l := range mask {
		nodes[i] = newServer()
		defer nodes[i].close()
		name += l.name + " "
		if l.yes {
			yes++
		}
		if l.gone {
			gone++
		}
	}
	e := New(voters(nodes), newBubbleClock(), stepTime)
	defer e.Close()
	lease := acquired(t, e, "mine")
	rest()
	before := lease.Until()
	for i, l := range mask {
		nodes[i].set(l.set)
	}
	start := time.Now()
	end, answers := extend(lease, t.Context(), 10*time.Second)
	rest()

	want := Missed
	if yes >= need {
		want = Extended
	}
	if end != want {
		t.Errorf("%s: %v, want %v: %v", name, end, want, answers)
	}
	valid := lease.Until().Mono.Sub(start)
	switch {
	case want == Extended && valid != 10*time.Second-Drift(10*time.Second):
		t.Errorf("%s: valid for %v from the send of the extension", name, valid)
	case want != Extended && lease.Until() != before:
		t.Errorf("%s: valid until %v, was %v before a round that no quorum confirmed", name, lease.Until(), before)
	}
	if got, want := lease.Impossible(), gone-countRepaired(mask, want) > len(mask)-need; got != want {
		t.Errorf("%s: impossible is %t, want %t", name, got, want)
	}
	for i, l := range mask {
		want := "mine"
		switch {
		case l.name == "another's":
			want = theirs
		case l.gone && !(l.repaired && end == Extended):
			want = ""
		}
		if got := nodes[i].holder(); got != want {
			t.Errorf("%s: node %d has the key %q, want %q; it did %v", name, i, got, want, nodes[i].order())
		}
		if end != Extended && nodes[i].executed("repair") > 0 {
			t.Errorf("%s: node %d was repaired without a quorum", name, i)
		}
		if l.name != "lost" && l.name != "had another's" && nodes[i].executed("repair") > 0 {
			t.Errorf("%s: node %d was repaired, and had no need", name, i)
		}
	}

	lease.Release()
	rest()
	for i, l := range mask {
		if l.name != "down" && l.name != "hung" && nodes[i].holder() == "mine" {
			t.Errorf("%s: node %d has our key after the release", name, i)
		}
	}
}

func countRepaired(mask []loss, end Extension) int {
	n := 0
	for _, l := range mask {
		if l.repaired && end == Extended {
			n++
		}
	}
	return n
}
