package redlatch_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
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
