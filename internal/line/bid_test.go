package line

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
)

// bidding makes bids that are counted.
func bidding() func() ballot.Claim {
	n := 0
	return func() ballot.Claim {
		n++
		return ballot.Claim{Record: record, ID: fmt.Sprint("bid ", n), TTL: time.Second}
	}
}

// bids has a caller wait who has bid, on nodes where another holds the record; out gets the
// end of its wait, and bid makes the next bid.
func bids(t *testing.T, nodes []*keeper) (l *Line, p *Place, bid func() ballot.Claim, out <-chan error) {
	t.Helper()
	l, bid = newLine(t, "one", nodes, nil), bidding()
	p = l.Join(claim)
	over := make(chan error, 1)
	go func() { over <- p.Await(t.Context(), 0, bid, quiet) }()
	settle()
	return l, p, bid, over
}

// A record that was granted to a bid is held at once by the caller who made it, until
// another call; and taken over by an attempt where the bid is another caller's or the
// answer of the node says so. The message says too who left the records on other nodes.
func TestGrant(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"own", "another caller's", "of long ago", "told while it asks", "answered first", "answered alone", "asked again without a bid"} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newKeepers(3)
			k := arbiter(t, nodes)
			k.set(func(k *keeper) { k.holder = "ours" })
			l := newLine(t, "one", nodes, nil)
			p := l.Join(claim)
			bid := bidding()
			if next := bid; way == "asked again without a bid" {
				bid = func() ballot.Claim {
					made := next()
					next = noBid
					return made
				}
			}
			start := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			out := make(chan error, 1)
			go func() { out <- p.Await(ctx, 0, bid, quiet) }()
			settle()
			granted := ballot.Call{Waiter: p.waiter, Record: record, From: "theirs", Bid: "bid 1", Token: 7, Waiting: true}
			call := func() { l.Called(l.Arbiter(record), granted) }
			switch way {
			case "own":
				call()
			case "another caller's":
				cancel()
				<-out
				go func() { out <- p.Await(t.Context(), 0, noBid, quiet) }()
				settle()
				call()
			case "of long ago":
				time.Sleep(beat * 3 / 2)
				call()
			case "told while it asks":
				k.set(func(k *keeper) { k.holder = "bid 1" })
				l.Changed(record)
				time.Sleep(travel / 2)
				call()
			case "answered first":
				k.set(func(k *keeper) { k.holder = "bid 1" })
				l.Changed(record)
				time.Sleep(2*travel + delay/2)
				call()
			case "answered alone":
				k.set(func(k *keeper) { k.holder = "bid 1" })
			case "asked again without a bid": // which takes a place again
				k.set(func(k *keeper) { k.holder = "bid 1" })
				l.Changed(record)
				time.Sleep(2*travel + delay/2)
				call()
			}
			if err := <-out; err != nil {
				t.Fatalf("%s: %v", way, err)
			}
			b, by, ok := p.Granted()
			if ok != (way == "own") || ok && (b.ID != "bid 1" || b.Sent.Mono != start || by != granted) {
				t.Errorf("%s: %+v, %+v, %t", way, b, by, ok)
			}
			if got := p.In(claim).Place.Bid; got != "bid 1" {
				t.Errorf("%s: it was granted to %q", way, got)
			}
			if got := p.In(claim).From; got != "theirs" && way != "answered alone" {
				t.Errorf("%s: records are left to it by %q", way, got)
			}
			p.Leave()
			settle()
			if !slices.Contains(k.forgone, "x of bid 1") {
				t.Errorf("%s: forgone: %q", way, k.forgone)
			}
			cancel()
		})
	}
}

// The record stays with a bid that a release has granted, where attempts to take it over come
// to nothing: it is known again at every look.
func TestBidIsKnownAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newKeepers(1)
		k := nodes[0]
		k.set(func(k *keeper) { k.holder = "ours" })
		bid := bidding()
		p := newLine(t, "first", nodes, nil).Join(claim)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		await := func() error { return p.Await(ctx, travel, bid, quiet) }
		out := make(chan error)
		go func() { out <- await() }()
		settle()
		k.set(func(k *keeper) { k.holder = "bid 1" }) // and the message is lost
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if bid := p.In(claim).Place.Bid; bid != "bid 1" {
				t.Fatalf("it takes over what is %q's", bid)
			}
			start := time.Now()
			if err := await(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 10*travel {
				t.Fatalf("it took its own bid for another's for %v", took)
			}
		}
		p.Leave()
		settle()
	})
}

// A grant that became a lock is not released when it is told again.
func TestGrantIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newKeepers(1)
		k := nodes[0]
		k.set(func(k *keeper) { k.holder = "ours" })
		l, p, _, out := bids(t, nodes)
		told := ballot.Call{Record: record, Waiter: p.In(claim).Place.Waiter, Bid: "bid 1", Token: 7}
		l.Called(0, told)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if _, granted, ok := p.Granted(); !ok || granted != told {
			t.Fatalf("it was granted %+v", granted)
		}
		p.Taken(ballot.Answer{Verdict: ballot.Granted, Token: 7})
		l.Called(0, told)
		settle()
		k.set(func(k *keeper) {
			if len(k.forgone) > 0 {
				t.Errorf("the lock was released: %v", k.forgone)
			}
		})
		told.Bid = "another"
		l.Called(0, told)
		settle()
		k.set(func(k *keeper) {
			if !slices.Equal(k.forgone, []string{record + " of another"}) {
				t.Errorf("what nobody accepted was not released: %v", k.forgone)
			}
		})
	})
}

// A caller who heard that the record was granted, and by whom records are left, may go before
// it makes an attempt: the next caller of the process learns from the node that the record is
// the place's own, and takes over what was left all the same.
func TestWhoLeftRecordsIsNotForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newKeepers(3)
		k := arbiter(t, nodes)
		k.set(func(k *keeper) { k.holder = "ours" })
		l, p, bid, out := bids(t, nodes)
		k.set(func(k *keeper) { k.holder = "bid 1" })
		l.Called(l.Arbiter(record), ballot.Call{Waiter: p.waiter, Record: record, From: "theirs", Bid: "bid 1", Token: 7})
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		// Its caller has gone: no attempt was made. The next caller of the process goes on.
		if err := p.Await(t.Context(), 0, bid, quiet); err != nil {
			t.Fatal(err)
		}
		c := p.In(claim)
		if c.Place.Bid != "bid 1" || c.From != "theirs" {
			t.Errorf("it takes over %q's record here and %q's elsewhere", c.Place.Bid, c.From)
		}
		p.Leave()
		settle()
	})
}

// The node that granted the record to the bid does not keep the place any more when that is
// heard of: the record is released, and not left there for as long as the bid was for.
func TestGrantOfAnotherNodeIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newKeepers(2)
		k := arbiter(t, nodes)
		for _, one := range nodes {
			one.set(func(k *keeper) { k.holder = "ours" })
		}
		l, p, _, out := bids(t, nodes)
		k.set(func(k *keeper) { k.slow = 2 * timeout })
		l.Changed(record)
		time.Sleep(timeout + 10*travel) // the place is on the other node now
		k.set(func(k *keeper) { k.slow = 0; k.holder = "bid 1" })
		l.Called(l.Arbiter(record), ballot.Call{Waiter: p.waiter, Record: record, From: "theirs", Bid: "bid 1", Token: 7})
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if c := p.In(claim); c.Place.Voter == l.Arbiter(record) || c.From != "theirs" {
			t.Fatalf("place %+v, from %q", c.Place, c.From)
		}
		p.Taken(ballot.Answer{Verdict: ballot.Granted, Token: 8})
		settle()
		if !slices.Contains(k.forgone, record+" of bid 1") {
			t.Errorf("what was granted there stays: given up were %q", k.forgone)
		}
	})
}

// The end of a place does not take away the one that the process has taken since (queues.pass
// gives the queue up before it leaves the place).
func TestEndOfPlaceIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newKeepers(1)
		k := nodes[0]
		k.set(func(k *keeper) { k.holder = "ours" })
		l := newLine(t, "one", nodes, nil)
		before := l.Join(claim)
		p := l.Join(claim)
		before.Leave()
		out := make(chan error, 1)
		go func() { out <- p.Await(t.Context(), 0, noBid, quiet) }()
		settle()
		start := time.Now()
		k.release(false)
		if err := <-out; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 10*travel {
			t.Errorf("it was called %v after the release", took)
		}
		p.Leave()
		settle()
	})
}
