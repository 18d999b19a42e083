package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// shelf is a node that keeps several keys, each as a server does.
type shelf map[string]*server

func (s shelf) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	return s[r.ID].Acquire(ctx, r)
}
func (s shelf) Extend(ctx context.Context, r vote.Extend) vote.Answer { return s[r.ID].Extend(ctx, r) }
func (s shelf) Confirm(ctx context.Context, r vote.Confirm) vote.Answer {
	return s[r.ID].Confirm(ctx, r)
}
func (s shelf) Repair(ctx context.Context, r vote.Extend) vote.Answer { return s[r.ID].Repair(ctx, r) }
func (s shelf) Release(ctx context.Context, r vote.Release) vote.Answer {
	return s[r.ID].Release(ctx, r)
}

func (s shelf) ExtendBatch(ctx context.Context, batch []vote.Extend) []vote.Answer {
	answers := make([]vote.Answer, len(batch))
	for i, r := range batch {
		answers[i] = s.Extend(ctx, r)
	}
	return answers
}

// shelves has so many leases on three nodes, and what keeps them.
func shelves(t *testing.T, n int) (nodes []shelf, e *Engine, leases []*Lease) {
	t.Helper()
	nodes = []shelf{{}, {}, {}}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("lease-", i)
		for _, node := range nodes {
			node[ids[i]] = newServer()
			t.Cleanup(node[ids[i]].close)
		}
	}
	e = New([]Voter{nodes[0], nodes[1], nodes[2]}, newBubbleClock(), stepTime)
	t.Cleanup(e.Close)
	for _, id := range ids {
		leases = append(leases, acquired(t, e, id))
	}
	rest()
	return nodes, e, leases
}

// renewTogether begins a round that renews the leases. over is closed when that is over.
func renewTogether(t *testing.T, e *Engine, leases []*Lease) (batch []renewal, over <-chan struct{}) {
	for _, l := range leases {
		batch = append(batch, renewal{lease: l, ttl: 10 * time.Second})
	}
	ended := make(chan struct{})
	go func() {
		e.extendBatch(t.Context(), batch, time.Minute)
		close(ended)
	}()
	synctest.Wait()
	return batch, ended
}

// What happens to one lease of a batch is nothing to the others.
func TestRenewalsEndsOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, leases := shelves(t, 5)
		for _, node := range nodes[:2] {
			node["lease-1"].set(func(s *server) { s.id = "" })
			node["lease-2"].set(func(s *server) { s.down = true })
		}
		leases[3].Release()
		rest()
		batch := make([]renewal, len(leases))
		for i, l := range leases {
			batch[i] = renewal{lease: l, ttl: 10 * time.Second}
		}
		batch[4].ttl = 20 * time.Second
		start := time.Now()
		e.extendBatch(t.Context(), batch, 0)
		rest()
		for i, want := range []Extension{Extended, Missed, Missed, Over, Extended} {
			if batch[i].end != want {
				t.Errorf("lease %d: %v, want %v: %v", i, batch[i].end, want, batch[i].answers)
			}
		}
		for _, i := range []int{0, 4} {
			if valid, ttl := leases[i].Until().Mono.Sub(start), batch[i].ttl; valid != ttl-Drift(ttl) {
				t.Errorf("lease %d is valid for %v from the send", i, valid)
			}
		}
		if !leases[1].Impossible() || leases[2].Impossible() {
			t.Error("two nodes have said of lease 1 alone that it is not there")
		}
	})
}

// A lease that its holder extends at the moment is left out, and not waited for.
func TestRenewalsLeavesOutWhatIsBeingExtended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, leases := shelves(t, 2)
		for _, node := range nodes {
			node["lease-0"].set(func(s *server) { s.lost = true })
		}
		holder := make(chan Extension)
		go func() {
			end, _ := leases[0].Extend(t.Context(), 10*time.Second)
			holder <- end
		}()
		synctest.Wait()
		batch := []renewal{{lease: leases[0], ttl: 10 * time.Second}, {lease: leases[1], ttl: 10 * time.Second}}
		e.extendBatch(t.Context(), batch, time.Minute)
		if batch[0].end != Busy || batch[1].end != Extended {
			t.Errorf("ended %v and %v", batch[0].end, batch[1].end)
		}
		if end := <-holder; end != Missed {
			t.Errorf("the holder's own ended %v", end)
		}
	})
}

// A release does not wait until others' extensions are over on nodes that are slow, and does not end them: a renewal has
// more than a step's time, also where other locks are released all the time.
func TestReleaseDuringExtendBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, leases := shelves(t, 2)
		for _, node := range nodes {
			node["lease-0"].set(func(s *server) { s.there = 10 * stepTime })
		}
		// A step of the lease's own is under way on one node, which the release comes after.
		nodes[2]["lease-1"].set(func(s *server) { s.lost = true })
		leases[1].Extend(t.Context(), 10*time.Second)
		nodes[2]["lease-1"].set(func(s *server) { s.lost = false })
		batch, over := renewTogether(t, e, leases)
		start := time.Now()
		leases[1].Release()
		if took := time.Since(start); took > 2*stepTime {
			t.Errorf("the release took %v", took)
		}
		<-over
		if batch[0].end != Extended || batch[1].end == Extended {
			t.Errorf("ended %v after %v, and %v", batch[0].end, time.Since(start), batch[1].end)
		}
		rest()
		for i, node := range nodes {
			if r := node["lease-1"].holder(); r != "" {
				t.Errorf("node %d has %q", i, r)
			}
		}
	})
}

// A holder's own extension waits for the renewal of its lock that is under way, and not for that of another lock,
// though the two were begun together.
func TestExtendDuringExtendBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, leases := shelves(t, 2)
		// Two nodes are enough for one lease. One of them does not have the other's key, which takes the third.
		nodes[0]["lease-1"].set(func(s *server) { s.id = "" })
		nodes[2]["lease-1"].set(func(s *server) { s.lost = true })
		batch, over := renewTogether(t, e, leases)
		start := time.Now()
		end, _ := leases[0].Extend(t.Context(), 20*time.Second)
		if took := time.Since(start); end != Extended || took > 2*stepTime {
			t.Errorf("the holder's own ended %v after %v", end, took)
		}
		<-over
		if batch[0].end != Extended || batch[1].end != Missed {
			t.Errorf("the renewals ended %v and %v", batch[0].end, batch[1].end)
		}
	})
}

// What became of one lease is told when it is decided, though others of its round still wait for a node: that a lock is
// lost is no news to be kept for long.
func TestRenewalsTellOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, leases := shelves(t, 2)
		// Two nodes are enough for one lease, of which both have lost the key. The other takes the third.
		for _, node := range nodes[:2] {
			node["lease-0"].set(func(s *server) { s.id = "" })
		}
		nodes[0]["lease-1"].set(func(s *server) { s.id = "" })
		nodes[2]["lease-1"].set(func(s *server) { s.lost = true })
		r := NewRenewals(t.Context(), e, false)
		told := make([]chan Extension, len(leases))
		for i, l := range leases {
			told[i] = make(chan Extension, 1)
			r.Renew(l, 10*time.Second, func(end Extension, _ []vote.Answer) { told[i] <- end })
		}
		start := time.Now()
		end := <-told[0]
		if took := time.Since(start); end != Missed || took > stepTime || !leases[0].Impossible() {
			t.Errorf("what is lost ended %v after %v", end, took)
		}
		if end := <-told[1]; end != Missed || time.Since(start) <= stepTime {
			t.Errorf("the other ended %v after %v", end, time.Since(start))
		}
	})
}

// A node that says only after the decision that it has lost the key of one lease is given that back.
func TestRenewalsRepairsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, leases := shelves(t, 2)
		nodes[2]["lease-1"].set(func(s *server) { s.id, s.there = "", stepTime/2 })
		batch := []renewal{{lease: leases[0], ttl: 10 * time.Second}, {lease: leases[1], ttl: 10 * time.Second}}
		e.extendBatch(t.Context(), batch, 0)
		rest()
		for i := range leases {
			s := nodes[2][fmt.Sprint("lease-", i)]
			if got, repairs := s.holder(), s.executed("repair"); got != fmt.Sprint("lease-", i) || repairs != i {
				t.Errorf("the key of lease %d is %q after %d repairs", i, got, repairs)
			}
		}
	})
}
