package waitqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

var errOver = errors.New("over")

// trying is a caller whose tries all fail, as try says, until it is to rest.
type trying struct {
	wanting
	try    func(n int) Failure
	tries  int
	rested []int
	// inRest, if set, is called while it rests; else it is over then.
	inRest func() error
}

func (*trying) Number() uint64             { return 0 }
func (*trying) Slots() uint16              { return 0 }
func (*trying) Request() vote.Acquire      { return request }
func (*trying) Queued(vote.Position) error { return nil }
func (*trying) Report()                    {}
func (*trying) Behind(*Holder, error)      {}
func (*trying) Ended() error               { return errOver }
func (c *trying) May() error {
	if c.tries > 100 {
		return errOver
	}
	return nil
}

func (c *trying) Rest(failures int) error {
	c.rested = append(c.rested, failures)
	if c.inRest != nil {
		return c.inRest()
	}
	return errOver
}

func (c *trying) Try(vote.Acquire) (*quorum.Lease, Failure) {
	c.tries++
	return nil, c.try(c.tries)
}

// When a caller's turn has come it makes some tries with short rests, and then rests for longer. Another turn, after
// somebody else was seen to have the key, begins anew.
func TestTriesOfATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		q := newQueue(t, "p", nodes, nil)
		q.options.Life = t.Context()
		const lost = 3 // tries of the first turn
		var tried time.Time
		c := &trying{try: func(n int) Failure {
			if n > 3+lost && time.Since(tried) < 2*travel+swiftRest/2 { // the node is asked, and a rest
				t.Errorf("try %d follows after %v", n, time.Since(tried))
			}
			tried = time.Now()
			if n == 1+lost {
				nodes[0].set(func(k *node) { k.holder = "ours" })
				time.AfterFunc(time.Second, func() { nodes[0].release(false) })
			}
			return Failure{Held: true}
		}}
		if err := q.Wait(t.Context(), c); err != errOver {
			t.Error(err)
		}
		if want := 1 + lost + swiftTries + 1; c.tries != want || len(c.rested) != 1 || c.rested[0] != swiftTries {
			t.Errorf("%d tries, want %d; rested after %v failures", c.tries, want, c.rested)
		}
	})
}

// A caller that cannot try for now gives up its place before it rests, and takes no other.
func TestPlaceOfACallerThatCannotTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		q := newQueue(t, "p", nodes, nil)
		q.options.Life = t.Context()
		c := &trying{try: func(n int) Failure { return Failure{Held: n == 1, Unsent: n > 1} }}
		c.inRest = func() error {
			settle()
			if order := nodes[0].order(); len(order) > 0 {
				t.Errorf("in the queue: %v", order)
			}
			if len(c.rested) > 1 {
				return errOver
			}
			return nil
		}
		if err := q.Wait(t.Context(), c); err != errOver || c.tries != 3 || nodes[0].asked() != 1 {
			t.Errorf("%d tries, asked for %d places: %v", c.tries, nodes[0].asked(), err)
		}
	})
}

// A caller that has given up its place because it could not try, and then finds the key held, is woken up as any other.
func TestPlaceAfterOneThatWasGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		nodes[0].set(func(k *node) { k.holder = "ours" })
		q := newQueue(t, "p", nodes, nil)
		q.options.Life = t.Context()
		var released time.Time
		c := &trying{inRest: func() error { return nil }}
		c.try = func(n int) Failure {
			switch n {
			case 1: // in the queue from now on
				time.AfterFunc(time.Second, func() { nodes[0].release(false) })
				return Failure{Held: true}
			case 2:
				nodes[0].set(func(k *node) { k.holder = "ours" })
				return Failure{Unsent: true}
			case 3:
				time.AfterFunc(time.Second, func() {
					released = time.Now()
					nodes[0].release(false)
				})
				return Failure{Held: true}
			}
			return Failure{Err: errOver, Final: true}
		}
		if err := q.Wait(t.Context(), c); err != errOver {
			t.Error(err)
		}
		if late := time.Since(released); late > 10*travel {
			t.Errorf("it tried %v after the release", late)
		}
		alone(t, q)
	})
}

// A wake-up that comes while a caller rests, as when its own try is undone, gives it no turn any more: it asks the node.
func TestWakeUpDuringARest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		q := newQueue(t, "p", nodes, nil)
		q.options.Life = t.Context()
		c := &trying{}
		c.inRest = func() error {
			nodes[0].set(func(k *node) { k.holder = "ours" })
			for waiter := range q.tickets[key] {
				q.Wake(0, vote.WakeUp{Key: key, Waiter: waiter})
			}
			time.AfterFunc(time.Second, func() { nodes[0].release(false) })
			return nil
		}
		c.try = func(int) Failure {
			if len(c.rested) > 0 && nodes[0].holder != "" {
				t.Error("it tries while another has the key")
			}
			return Failure{Held: true, Err: errOver, Final: len(c.rested) > 0}
		}
		if err := q.Wait(t.Context(), c); err != errOver || len(c.rested) != 1 {
			t.Errorf("rested %d times: %v", len(c.rested), err)
		}
	})
}

// numbered is a caller that has had a place before, with that number.
type numbered struct {
	*trying
	number uint64
}

func (c numbered) Number() uint64 { return c.number }

// The number that a caller had in another queue counts in the next one.
func TestPlaceWithANumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		q := newQueue(t, "p", nodes, nil)
		q.options.Life = t.Context()
		c := numbered{&trying{}, 7}
		c.try = func(n int) Failure {
			for _, number := range nodes[0].queue {
				if number != c.number {
					t.Errorf("the number is %d", number)
				}
			}
			return Failure{Held: true, Err: errOver, Final: len(nodes[0].queue) > 0}
		}
		if err := q.Wait(t.Context(), c); err != errOver || c.tries != 2 {
			t.Errorf("%d tries: %v", c.tries, err)
		}
	})
}

// A reader that has waited in vain is in no queue any more.
func TestPlaceOfAReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		q := newQueue(t, "p", nodes, nil)
		q.options.Life = t.Context()
		c := &trying{try: func(n int) Failure { return Failure{Held: true, Err: errOver, Final: n > 1} }}
		if err := q.WaitShared(t.Context(), c); err != errOver {
			t.Error(err)
		}
		if settle(); nodes[0].asked() != 1 || len(nodes[0].order()) > 0 || len(q.tickets) > 0 {
			t.Errorf("in the queue: %v", nodes[0].order())
		}
	})
}

// queueOfHeld returns a queue of a process that has the key.
func queueOfHeld(t *testing.T) (*Queue, *Holder) {
	t.Helper()
	q := newQueue(t, "p", newNodes(1), nil)
	q.options.Life = t.Context()
	q.enter(wanting{})
	holder := &Holder{Caller: wanting{}}
	q.acquired(holder, true, false)
	return q, holder
}

// A caller whose turn comes knows who was before it: its ctx may end before a node has told of anybody else.
func TestWhoseTurnComesKnowsWhoWasBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, holder := queueOfHeld(t)
		c := &hearing{trying: &trying{try: func(int) Failure { return Failure{Err: errOver, Final: true} }}}
		over := make(chan error)
		go func() { over <- q.Wait(t.Context(), c) }()
		settle()
		c.behind = nil // what it was told when it came
		q.LetGo(holder)
		if err := <-over; err != errOver || len(c.behind) != 1 || c.behind[0] != holder {
			t.Errorf("it was told of %v: %v", c.behind, err)
		}
	})
}

// Those behind a caller that contends are told why that one has failed, also where it has no place in the queue.
func TestFailureIsToldToThoseBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		q.options.Life = t.Context()
		errNone := errors.New("no quorum")
		first := &trying{try: func(int) Failure { return Failure{Err: errNone} }}
		first.inRest = func() error {
			time.Sleep(2 * time.Second)
			return errOver
		}
		failed := make(chan error)
		go func() { failed <- q.Wait(t.Context(), first) }()
		settle()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		behind := &hearing{trying: new(trying)}
		if err := q.Wait(ctx, behind); err != errOver {
			t.Error(err)
		}
		if len(behind.why) != 2 || behind.why[0] != errNone || behind.why[1] != errNone {
			t.Errorf("it is told %v", behind.why)
		}
		if err := <-failed; err != errOver {
			t.Error(err)
		}
	})
}

// lifetime is a context that does not end, and counts who waits for its end.
type lifetime struct {
	done     chan struct{}
	awaiting atomic.Int32
}

func (*lifetime) Deadline() (time.Time, bool) { return time.Time{}, false }
func (l *lifetime) Done() <-chan struct{}     { return l.done }
func (*lifetime) Err() error                  { return nil }
func (*lifetime) Value(any) any               { return nil }
func (l *lifetime) AfterFunc(func()) (stop func() bool) {
	l.awaiting.Add(1)
	return func() bool {
		l.awaiting.Add(-1)
		return true
	}
}

// Who has waited in the queue leaves nothing behind that would stay until the client is closed, or ctx is done.
func TestWaitLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		life, ctx := &lifetime{done: make(chan struct{})}, &lifetime{done: make(chan struct{})}
		q.options.Life = life
		most := int32(0)
		c := &trying{}
		c.try = func(int) Failure { return Failure{Held: true} }
		c.inRest = func() error {
			most = max(most, life.awaiting.Load(), ctx.awaiting.Load())
			return errOver
		}
		if err := q.Wait(ctx, c); err != errOver || c.tries < 2 {
			t.Errorf("%d tries: %v", c.tries, err)
		}
		if left := max(most, life.awaiting.Load(), ctx.awaiting.Load()); left > 0 {
			t.Errorf("%d waits in the queue wait for the end of the client, or of ctx, after they are over", left)
		}
	})
}

// winning is a caller whose try holds when it is over.
type winning struct {
	trying
	ctx    context.Context
	engine *quorum.Engine
	// before is called during the try, and held with the holder before the queue hears of it.
	before func()
	held   func(*Holder)
}

func (*winning) Listens() bool         { return false }
func (*winning) Behind(*Holder, error) {}

func (c *winning) Try(vote.Acquire) (*quorum.Lease, Failure) {
	c.before()
	lease, _ := c.engine.Acquire(c.ctx, vote.Acquire{Key: key, ID: "won", TTL: 10 * time.Second, Proposed: 1})
	return lease, Failure{}
}

func (c *winning) Hold(*quorum.Lease) *Holder {
	h := &Holder{Caller: c}
	c.held(h)
	return h
}

// A caller whose lock is over before the queue has heard of it, as one that was lost at once, passes its turn on once:
// one of those behind it contends, and the next when that one has failed.
func TestTurnIsPassedOnOnce(t *testing.T) {
	t.Parallel()
	for _, handed := range []bool{false, true} { // by an attempt of its own, or by the last holder's
		synctest.Test(t, func(t *testing.T) {
			e := quorum.New([]quorum.Voter{&granting{}}, clock.System, time.Second)
			defer e.Close()
			q := newQueue(t, "p", newNodes(1), nil)
			q.options.Life = t.Context()
			const ttl = 10 * time.Second
			release := func() {}
			if handed {
				q.options.Succeed = func(_ Caller, before *quorum.Lease) *quorum.Lease {
					next, _ := before.Succeed(ttl)
					return next
				}
				lease, _ := e.Acquire(t.Context(), vote.Acquire{Key: key, ID: "mine", TTL: ttl, Proposed: 1, More: 1})
				q.enter(wanting{})
				holder := &Holder{Caller: wanting{}}
				q.acquired(holder, true, false)
				release = func() { q.Release(holder, lease) }
			}
			first := &winning{ctx: t.Context(), engine: e, before: func() { time.Sleep(time.Second) }, held: q.LetGo}
			won := make(chan error)
			go func() { won <- q.Wait(t.Context(), first) }()
			settle()
			var tries atomic.Int32
			failed := make(chan error)
			for range 3 {
				c := &trying{try: func(int) Failure {
					if tries.Add(1) > 1 {
						t.Errorf("passed on %t: two contend at once", handed)
					}
					time.Sleep(time.Second)
					tries.Add(-1)
					return Failure{Err: errOver, Final: true}
				}}
				go func() { failed <- q.Wait(t.Context(), unheard{c}) }()
			}
			settle()
			release()
			if err := <-won; err != nil {
				t.Error(err)
			}
			for range 3 {
				if err := <-failed; err != errOver {
					t.Error(err)
				}
			}
			alone(t, q)
		})
	}
}

// unheard does not want to be told what it waits for.
type unheard struct{ *trying }

func (unheard) Listens() bool { return false }

// hearing is a caller that wants to be told what it waits for.
type hearing struct {
	*trying
	behind []*Holder
	why    []error
	// report is called with the number of the report.
	report  func(n int)
	reports int
}

func (*hearing) Listens() bool { return true }
func (c *hearing) Behind(h *Holder, why error) {
	c.behind, c.why = append(c.behind, h), append(c.why, why)
}
func (c *hearing) Report() {
	c.reports++
	if c.report != nil {
		c.report(c.reports)
	}
}

// A caller behind others of its process is told at once, and each second, whose lock it waits for or what stands in their
// way; and when its ctx ends, for the error.
func TestReportsBehindOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, holder := queueOfHeld(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		c := &hearing{trying: new(trying)}
		c.report = func(n int) {
			if len(c.behind) != n {
				t.Errorf("report %d comes when the caller was told %d times", n, len(c.behind))
			}
		}
		time.AfterFunc(1500*time.Millisecond, func() { q.fail(holder.local, errOver) })
		if err := q.Wait(ctx, c); err != errOver {
			t.Error(err)
		}
		if c.reports != 3 || len(c.behind) != 4 {
			t.Fatalf("%d reports, and told %d times", c.reports, len(c.behind))
		}
		for i, want := range []error{nil, nil, errOver, errOver} {
			if c.behind[i] != holder || c.why[i] != want {
				t.Errorf("%d: behind %v, because of %v", i, c.behind[i], c.why[i])
			}
		}
		q.LetGo(holder)
		alone(t, q)
	})
}

// A report that panics, or ends its goroutine, holds nobody up, wherever the caller is by then.
func TestReportThatPanics(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{"behind others, at first": 1, "behind others, later": 2, "while it contends": 3} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, "p", newNodes(1), nil)
			q.options.Life = t.Context()
			l, _ := q.enter(wanting{})
			c := &hearing{trying: &trying{try: func(int) Failure { return Failure{} }}}
			c.report = func(n int) {
				if n == at {
					panic(name)
				}
			}
			go func() {
				time.Sleep(1500 * time.Millisecond)
				q.pass(l)
			}()
			func() {
				defer func() {
					if got := recover(); got != name {
						t.Errorf("%s: %v", name, got)
					}
				}()
				t.Errorf("%s: %v", name, q.Wait(t.Context(), c))
			}()
			time.Sleep(2 * time.Second)
			alone(t, q)
		})
	}
}
