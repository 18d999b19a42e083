package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// seen is what an observer was yielded.
type seen struct {
	holder redlatch.Holder
	err    error
}

// observing observes until the test is over.
func observing(t *testing.T, c Client, name string) <-chan seen {
	ctx, cancel := context.WithCancel(t.Context())
	all := make(chan seen, 1000)
	var over sync.WaitGroup
	over.Go(func() {
		for holder, err := range c.Observe(ctx, name) {
			all <- seen{holder, err}
		}
	})
	t.Cleanup(func() { cancel(); over.Wait() })
	return all
}

// awaitSeen waits for what is yielded, in which errors of nodes of a busy machine that were late,
// and nobody, may come before.
func awaitSeen(t *testing.T, all <-chan seen, what string, is func(redlatch.Holder) bool) {
	t.Helper()
	deadline := time.NewTimer(locktest.Patience)
	defer deadline.Stop()
	for late := false; ; {
		select {
		case s := <-all:
			switch {
			case s.err != nil && errors.Is(s.err, redlatch.ErrNoQuorum):
				late = true // the one before is told again
			case s.err != nil:
				t.Fatalf("%s: %v", what, s.err)
			case is(s.holder):
				return
			case s.holder.ID != "" && !late:
				t.Errorf("%s: %v is told", what, s.holder)
			}
		case <-deadline.C:
			t.Fatalf("%s is not told", what)
		}
	}
}

func nobody(h redlatch.Holder) bool { return h == redlatch.Holder{} }

func labelled(label string) func(redlatch.Holder) bool {
	return func(h redlatch.Holder) bool { return h.Label == label && !h.Since.IsZero() && h.ID != "" }
}

// An observer of another client and one of the same see each holder, and nobody: in this order.
func observeChanges(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	observers := []<-chan seen{observing(t, client, t.Name()), observing(t, s.Open(t, redlatch.Config{}), t.Name())}
	each := func(what string, is func(redlatch.Holder) bool) {
		t.Helper()
		for _, o := range observers {
			awaitSeen(t, o, what, is)
		}
	}
	each("nobody", nobody)
	for _, label := range []string{"a", "b"} {
		lock := locktest.TryLock(t, client, t.Name(), redlatch.WithLabel(label))
		each(label, labelled(label))
		if label == "b" {
			observers = append(observers, observing(t, client, t.Name())) // which comes later
			awaitSeen(t, observers[2], label, labelled(label))
		}
		locktest.Unlock(t, lock)
		each("nobody", nobody)
	}
	err := client.Campaign(locktest.Within(t, locktest.Patience), t.Name(), func(context.Context) error {
		each("the leader", labelled("leader"))
		return nil
	}, redlatch.WithLabel("leader"))
	if err != nil {
		t.Error(err)
	}
	each("nobody", nobody)
}

// A key of another library's is a holder, too.
func observeForeign(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	all := observing(t, s.Open(t, redlatch.Config{}), t.Name())
	awaitSeen(t, all, "nobody", nobody)
	for i := range stolen(s) {
		s.Set(t, i, t.Name(), "theirs")
	}
	awaitSeen(t, all, "theirs", func(h redlatch.Holder) bool { return h.ID == "theirs" && h.Label == "" && h.Since.IsZero() })
	for i := range stolen(s) {
		s.Set(t, i, t.Name(), "")
	}
	awaitSeen(t, all, "nobody", nobody)
}

// A range over it ends when the consumer breaks off, with ctx, with the client, and where there is
// nothing to be observed.
func observeEnds(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	for range 2 { // it can be ranged over again
		for holder, err := range client.Observe(t.Context(), t.Name()) {
			if !nobody(holder) || err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("%v, %v", holder, err)
			}
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range client.Observe(ctx, t.Name()) {
		cancel()
	}
	for range client.Observe(ctx, t.Name()) {
		t.Error("something is yielded when ctx is done")
	}
	var last error
	for _, last = range client.Observe(t.Context(), "") {
	}
	if !errors.Is(last, redlatch.ErrInvalid) {
		t.Errorf("no name: %v", last)
	}
	for _, err := range client.Observe(t.Context(), t.Name()) {
		if last = err; err == nil {
			client.Close() // the loop may do so itself
		}
	}
	if !errors.Is(last, redlatch.ErrClosed) {
		t.Errorf("closed: %v", last)
	}
}
