package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// As many commands as the bound go at once; the next waits until one is over, or for
// its ctx, and then was not sent.
func TestFlightIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		for i := range maxInFlight {
			if err := f.votes.take(t.Context()); err != nil {
				t.Fatalf("command %d: %v", i, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := f.votes.take(ctx)
		if !errors.Is(err, driver.ErrNotSent) || time.Since(start) != 50*time.Millisecond {
			t.Errorf("beyond the bound: %v after %v", err, time.Since(start))
		}
		// A hung node that is full of votes still takes releases.
		if err := f.releases.take(t.Context()); err != nil {
			t.Errorf("a release: %v", err)
		}
		time.AfterFunc(time.Second, func() { f.votes.free() })
		start = time.Now()
		if err := f.votes.take(t.Context()); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A command whose caller left counts as under way until the node has answered what came
// before the probe; meanwhile the node is silent.
func TestAbandonedCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		for range 3 {
			if err := f.votes.take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.releases.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.silence() != 0 {
			t.Errorf("silent for %v before anybody left", f.silence())
		}
		if !f.abandon(f.votes) {
			t.Error("the first to leave starts no probe")
		}
		if f.abandon(f.releases) {
			t.Error("a second probe is started")
		}
		answered := make(chan struct{})
		done := make(chan struct{})
		go func() {
			f.probe(func() { <-answered })
			close(done)
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		if f.silence() != time.Second || len(f.votes) != 3 || len(f.releases) != 1 {
			t.Errorf("silent for %v, %d votes, %d releases under way", f.silence(), len(f.votes), len(f.releases))
		}
		// One more leaves while the probe is under way: its command came after
		// the probe's, so it takes another.
		if f.abandon(f.votes) {
			t.Error("a second probe is started")
		}
		answered <- struct{}{}
		synctest.Wait()
		if len(f.votes) != 2 || len(f.releases) != 0 {
			t.Errorf("%d votes, %d releases under way after the first answer", len(f.votes), len(f.releases))
		}
		if f.silence() != 0 {
			t.Errorf("silent for %v right after an answer", f.silence())
		}
		time.Sleep(time.Second)
		if f.silence() != time.Second {
			t.Errorf("silent for %v, and the second probe has no answer yet", f.silence())
		}
		answered <- struct{}{}
		<-done
		if len(f.votes) != 1 || f.silence() != 0 {
			t.Errorf("%d votes under way, silent for %v", len(f.votes), f.silence())
		}
		if !f.abandon(f.votes) {
			t.Error("no probe is started after the last ended")
		}
	})
}

// Where abandoned commands are waited for one by one, the node is silent while it owes an answer, and since its last.
func TestUnansweredCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		await := func() (over chan<- struct{}) {
			c := make(chan struct{})
			go f.await(func() { <-c })
			synctest.Wait()
			time.Sleep(time.Second)
			return c
		}
		silent := func(when string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := f.silence(); got != want {
				t.Errorf("%s: silent for %v, want %v", when, got, want)
			}
		}
		first := await()
		second := await()
		silent("two are unanswered", 2*time.Second)
		close(second)
		silent("one is over", 0)
		time.Sleep(time.Second)
		silent("a while later", time.Second)
		close(first)
		time.Sleep(time.Second)
		silent("both are over", 0)
		third := await()
		silent("one more is unanswered", time.Second)
		close(third)
	})
}

// A node that owes an answer for long is asked for no more votes, but is still told to release, also where steps go
// together.
func TestReleaseOfASilentNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, batchAbove := range []int{math.MaxInt, -1} {
			n := voter(t, &renewed{scripted: scripted{answer: released}, reply: deleted}, batchAbove)
			extension, release := vote.Extend{Key: "x", ID: "mine", TTL: time.Second}, vote.Release{Key: "x", ID: "mine"}
			if a := n.Extend(t.Context(), extension); a.Verdict != vote.Granted {
				t.Fatal(a)
			}
			inFlight := n.votes.Load()
			inFlight.mu.Lock()
			inFlight.silentSince = time.Now().Add(-n.options.Patience - time.Millisecond)
			inFlight.mu.Unlock()
			if a := n.Extend(t.Context(), extension); a.Verdict != vote.NotSent {
				t.Errorf("extended: %v", a.Verdict)
			}
			if a := n.Release(t.Context(), release); a.Verdict != vote.Granted {
				t.Errorf("released: %v, %v", a.Verdict, a.Err)
			}
			if a := n.Drop(t.Context(), Native, release); a.Verdict == vote.NotSent {
				t.Errorf("released by a command: %v, %v", a.Verdict, a.Err)
			}
		}
	})
}

// In a Cluster only votes are counted together for all slots of a master. Anything else may have gone to a master to
// which the slot has moved. Yet it is not sent to a master that owes the answer to a vote, unless it is a release.
func TestWhatIsCountedForAMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refusal := func(a vote.Answer) error { return a.Err }
		for name, step := range map[string]func(context.Context, *Node) error{
			"extend": func(ctx context.Context, n *Node) error {
				return refusal(n.Extend(ctx, vote.Extend{Key: "x", ID: "mine"}))
			},
			"release": func(ctx context.Context, n *Node) error {
				return refusal(n.Release(ctx, vote.Release{Key: "x", ID: "mine"}))
			},
			"enqueue": func(ctx context.Context, n *Node) error { return n.Enqueue(ctx, vote.Enqueue{Key: "x"}).Err },
			"query":   func(ctx context.Context, n *Node) error { return refusal(n.Query(ctx, "x")) },
			"read":    func(ctx context.Context, n *Node) error { return refusal(n.Read(ctx, "x")) },
			"watch": func(ctx context.Context, n *Node) error {
				a, _ := n.Watch(ctx, ctx, "x")
				return a.Err
			},
			"list": func(ctx context.Context, n *Node) error {
				_, a := n.ReadAll(ctx, []string{"x"}, false)
				return a.Err
			},
		} {
			conn := &hung{over: make(chan struct{})}
			conn.hangs.Store(true)
			n := New(conn, Options{slotTag: "7", Patience: time.Second, Logger: slog.New(slog.DiscardHandler)})
			n.link.connected.Store(1)
			n.link.seen.Store(&sighting{run: "a", connection: 1})
			votes := newInFlight()
			n.votes.Store(votes)
			try := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				return step(ctx, n)
			}
			if err := try(); !errors.Is(err, errNoAnswer) {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(2 * n.options.Patience)
			if got, want := votes.silence() > 0, name == "extend"; got != want {
				t.Errorf("%s: counted for the master %t, want %t", name, got, want)
			}
			n.inFlight.mu.Lock()
			n.inFlight.silentSince = time.Time{}
			n.inFlight.mu.Unlock()
			votes.mu.Lock()
			votes.silentSince = time.Now().Add(-2 * n.options.Patience)
			votes.mu.Unlock()
			if err := try(); errors.Is(err, errSilent) != (name != "release") {
				t.Errorf("%s, of a master that owes an answer to a vote: %v", name, err)
			}
			close(conn.over)
			n.end()
			n.background.Wait()
		}
	})
}

// Whatever callers do, each command counts as under way until it is over, and no longer.
func TestFlightUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		var callers, probes sync.WaitGroup
		for i := range 5000 {
			callers.Go(func() {
				taken := f.votes
				if i%3 == 0 {
					taken = f.releases
				}
				if err := taken.take(t.Context()); err != nil {
					t.Errorf("%v", err)
					return
				}
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				if i%5 != 0 {
					taken.free()
					return
				}
				if f.abandon(taken) {
					probes.Go(func() { f.probe(func() { time.Sleep(10 * time.Millisecond) }) })
				}
			})
		}
		callers.Wait()
		probes.Wait()
		if len(f.votes) != 0 || len(f.releases) != 0 || f.silence() != 0 {
			t.Errorf("%d votes, %d releases under way, silent for %v", len(f.votes), len(f.releases), f.silence())
		}
	})
}

// Votes for one master are counted together, and apart from those for another.
func TestVotesOfEachMaster(t *testing.T) {
	t.Parallel()
	f := mastersInFlight{of: make(map[string]*inFlight)}
	if a, b := f.to("a"), f.to("b"); a == nil || a != f.to("a") || a == b {
		t.Errorf("%p, %p and %p", a, f.to("a"), b)
	}
}

// drained is a connection that does not answer in order.
type drained struct {
	driver.Conn
	over    chan struct{}
	waiting string // the key for which it is waited
}

func (c *drained) Drain(key string) {
	c.waiting = key
	<-c.over
}

// A command counts as under way until it is over, which an abandoned one is later. The server is inspected anew after an
// error that is no reply, and where it is a replica. What was not sent in time says so, in place of what a step's own context
// ends with.
func TestHowACommandEnds(t *testing.T) {
	t.Parallel()
	broken, refusal, replica := errors.New("broken"), error(&driver.ServerError{Text: "ERR no"}), error(&driver.ServerError{Text: "READONLY no"})
	for what, c := range map[string]struct {
		err, want       error
		late            bool
		doubted, unsent bool
	}{
		"answered":           {},
		"refused":            {err: refusal, want: refusal},
		"refused, late":      {err: refusal, want: refusal, late: true},
		"by a replica":       {err: replica, want: replica, doubted: true},
		"broken":             {err: broken, want: broken, doubted: true},
		"not sent, broken":   {err: driver.NotSent(broken), want: broken, doubted: true, unsent: true},
		"not sent in time":   {err: driver.NotSent(context.Canceled), want: errNoTime, late: true, unsent: true},
		"full when it ended": {err: driver.NotSent(errSilent), want: errSilent, late: true, unsent: true},
		"abandoned":          {err: context.Canceled, want: errNoAnswer, late: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &drained{over: make(chan struct{})}
			n := New(conn, Options{slotTag: "7"})
			n.link.connected.Store(1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err := n.inFlight.votes.take(ctx); err != nil {
				t.Fatal(err)
			}
			if c.late {
				cancel()
			}
			err := n.ended(ctx, n.inFlight, n.inFlight.votes, c.err)
			if !errors.Is(err, c.want) || errors.Is(err, driver.ErrNotSent) != c.unsent || c.late && errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v", what, err)
			}
			if doubted := n.link.connected.Load() == 0; doubted != c.doubted {
				t.Errorf("%s: the server is inspected anew: %t", what, doubted)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			taken, silence := 0, time.Duration(0)
			if c.want == errNoAnswer {
				taken, silence = 1, time.Second
			}
			if len(n.inFlight.votes) != taken || n.inFlight.silence() != silence || taken == 1 && conn.waiting != "7" {
				t.Errorf("%s: %d commands are under way, the node is silent for %v", what, len(n.inFlight.votes), n.inFlight.silence())
			}
			close(conn.over)
			n.background.Wait()
			if len(n.inFlight.votes) != 0 || n.inFlight.silence() != 0 {
				t.Errorf("%s: %d commands are under way when it is over", what, len(n.inFlight.votes))
			}
		})
	}
}
