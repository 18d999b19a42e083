package redlatch_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/redlatchtest"
)

// reasons is a log that notes when it was told why a call waits.
type reasons struct {
	slog.Handler
	told map[error][]time.Time
}

func (*reasons) Enabled(context.Context, slog.Level) bool { return true }

func (r *reasons) Handle(_ context.Context, record slog.Record) error {
	if record.Message != "waiting for the lock" {
		return nil
	}
	record.Attrs(func(a slog.Attr) bool {
		if failure, ok := a.Value.Any().(*redlatch.QuorumError); ok {
			for _, kind := range []error{redlatch.ErrHeld, redlatch.ErrNoQuorum} {
				if errors.Is(failure, kind) {
					r.told[kind] = append(r.told[kind], time.Now())
				}
			}
		}
		return true
	})
	return nil
}

// The log is told of a wait that takes long, and again when there is another reason, but of none of two that alternate
// more than once a minute.
func TestWaitIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &reasons{told: make(map[error][]time.Time)}
		client := redlatchtest.New(t, redlatch.Config{Logger: slog.New(log)})
		if _, err := client.Peer(redlatch.Config{}).TryLock(t.Context(), "name"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		start := time.Now()
		go func() {
			defer close(over)
			_, _ = client.Lock(ctx, "name")
		}()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if held := log.told[redlatch.ErrHeld]; len(held) != 1 || held[0].Sub(start) < time.Second || held[0].Sub(start) > 10*time.Second {
			t.Errorf("it was held, which the log was told at %v since %v", held, start)
		}
		const flips = 30
		for i := range flips {
			client.Cut(i%2 == 0)
			time.Sleep(10 * time.Second)
		}
		cancel()
		<-over
		for kind, at := range log.told {
			if len(at) < 4 || len(at) > 7 {
				t.Errorf("%v: the log was told %d times in five minutes: %v", kind, len(at), at)
			}
			for i := range at[1:] {
				if d := at[i+1].Sub(at[i]); d < time.Minute {
					t.Errorf("%v: the log was told again after %v", kind, d)
				}
			}
		}
		if len(log.told) != 2 {
			t.Errorf("the log was told %v", log.told)
		}
	})
}

// reported has the client wait for the lock "b", and returns the first reason that it is told.
func reported(t *testing.T, c *redlatch.Client) *redlatch.QuorumError {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var why error
	_, err := c.Lock(ctx, "b", redlatch.WithWaitReport(func(err error) {
		why = err
		cancel()
	}))
	if err == nil {
		t.Fatal("it has the lock")
	}
	return locktest.FailureOf(t, why)
}

// A call that waits behind one for several names is told who has its own name, and nothing of the others.
func TestWaitBehindACallForSeveralNames(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := openNodes(t, redlatch.Config{}, 3, "b")
			o.arbiter.Set("b", "other", time.Hour)
			o.others[0].Set("b", "other", time.Hour)
			o.others[1].Set("z", "another", time.Hour)
			o.arbiter.link.Delay(time.Millisecond) // so that the last one is heard, too
			o.others[0].link.Delay(time.Millisecond)
			if away {
				for _, n := range append(o.others, o.arbiter) {
					n.link.Cut(true)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error)
			go func() {
				_, err := o.client.LockAll(ctx, []string{"z", "b"})
				over <- err
			}()
			time.Sleep(10 * time.Second)
			why := reported(t, o.client)
			if kind := map[bool]error{false: redlatch.ErrHeld, true: redlatch.ErrNoQuorum}[away]; why.Name != "b" || !errors.Is(why, kind) {
				t.Errorf("no node answers %t: %v", away, why)
			}
			for _, a := range why.Nodes {
				if a.Name != "" || a.Holder.ID == "another" {
					t.Errorf("no node answers %t: it is told of another name: %+v", away, a)
				}
			}
			cancel()
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// A call that joins the queue before it has made a try knows only what the arbiter says: nothing was sent to the other nodes.
func TestWaitBeforeAnyTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newTrio()
		first, second := nodes.open(t, 0), nodes.open(t, 0)
		lock, err := first.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the last node has granted it, too: else the other could have the arbiter's vote
		got := make(chan error)
		go func() {
			_, err := second.Lock(t.Context(), "b")
			got <- err
		}()
		time.Sleep(time.Second)
		if err := lock.Unlock(t.Context()); err != nil { // it learns that another waits
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the arbiter's answer, for which Unlock need not have waited, has come
		before := first.Stats().Tries
		why := reported(t, first.Client)
		if tries := first.Stats().Tries - before; tries != 0 {
			t.Errorf("%d tries", tries)
		}
		of := make(map[redlatch.Verdict]int)
		for _, a := range why.Nodes {
			of[a.Verdict]++
		}
		if of[redlatch.VoteHeld] != 1 || of[redlatch.VoteNotSent] != 2 {
			t.Errorf("%v: %v", why, why.Nodes)
		}
	})
}

// A call that has a place says what the node that gave it says now, and keeps of the others what does not contradict that. It goes
// on to say who had the lock where that is kept for another who waits, unless it was a caller of its own client.
func TestWaitAfterATry(t *testing.T) {
	t.Parallel()
	held := func(id string, left time.Duration) redlatch.NodeAnswer {
		return redlatch.NodeAnswer{Verdict: redlatch.VoteHeld, Holder: redlatch.Holder{ID: id}, Left: left}
	}
	none, away, another := redlatch.NodeAnswer{}, redlatch.NodeAnswer{Verdict: redlatch.VoteNotSent}, held("a", 9)
	another.Name = "y"
	for what, c := range map[string]struct {
		before []redlatch.NodeAnswer
		here   bool
		place  vote.Answer
		want   []redlatch.NodeAnswer
	}{
		"the same holder":       {[]redlatch.NodeAnswer{held("a", 9), held("a", 9), away}, false, vote.Answer{Holder: "a", Left: 5}, []redlatch.NodeAnswer{held("a", 5), held("a", 5), away}},
		"another holder":        {[]redlatch.NodeAnswer{held("a", 9), held("a", 9), away}, false, vote.Answer{Holder: "b", Left: 5}, []redlatch.NodeAnswer{held("b", 5), none, away}},
		"kept for a waiter":     {[]redlatch.NodeAnswer{held("a", 9), held("a", 9), away}, false, vote.Answer{Left: 5}, []redlatch.NodeAnswer{held("a", 9), held("a", 9), away}},
		"our own one before it": {[]redlatch.NodeAnswer{held("a", 9), held("a", 9), away}, true, vote.Answer{Left: 5}, []redlatch.NodeAnswer{held("", 5), none, away}},
		"another name":          {[]redlatch.NodeAnswer{another, another, away}, false, vote.Answer{Holder: "b", Left: 5}, []redlatch.NodeAnswer{held("b", 5), another, away}},
		"no quorum before it":   {[]redlatch.NodeAnswer{away, away, away}, false, vote.Answer{Left: 5}, []redlatch.NodeAnswer{held("", 5), away, away}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.place.Verdict = vote.Held
			err := redlatch.QueuedAfter(openNodes(t, redlatch.Config{}, 3, "x").client, c.before, c.here, vote.Position{Answer: c.place})
			if !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("%s: %v", what, err)
			}
			if got := locktest.FailureOf(t, err).Nodes; !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", what, got, c.want)
			}
		})
	}
}

// Who waits behind a caller that contends for a lock that ran out is not told that it is held for ever.
func TestWaitAfterALockThatRanOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Second
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl, NodeTimeout: time.Second})
		lock, err := client.TryLock(t.Context(), "name", redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*ttl)
		defer cancel()
		errs := make(chan error, 1)
		go func() {
			_, err := client.Lock(ctx, "name")
			errs <- err
		}()
		client.Delay(time.Hour)  // longer than anybody waits for an answer
		time.Sleep(ttl + ttl/10) // the other call's first try is under way
		behind, end := context.WithTimeout(ctx, ttl/10)
		defer end()
		_, err = client.Lock(behind, "name")
		if h, left, ok := locktest.FailureOf(t, err).Holder(); !ok || h.ID != hook.LeaseOf(lock).HolderID() || left != 0 {
			t.Errorf("%q has it for %v: %v", h.ID, left, err)
		}
		if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
