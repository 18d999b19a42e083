package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
)

// leaving is a caller that waits for its turn until its ctx is done.
type leaving struct{ wanting }

func (leaving) Listens() bool         { return false }
func (leaving) Behind(*Holder, error) {}
func (leaving) Ended() error          { return context.Canceled }

// alone checks that a caller that comes now need not wait, and that nothing of key is left when it has gone.
func alone(t *testing.T, q *Queue) {
	t.Helper()
	l, w := q.enter(wanting{})
	if w != nil {
		t.Error("a caller waits behind nobody")
		return
	}
	q.pass(l)
	if len(q.locals) > 0 {
		t.Errorf("left in the process: %v", q.locals)
	}
}

// A caller whose turn comes just as it goes passes the turn on, whichever it sees first.
func TestTurnOfACallerThatGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 64 {
			q := newQueue(t, "p", newNodes(1), nil)
			q.options.Life = t.Context()
			l, _ := q.enter(wanting{})
			_, behind := q.enter(leaving{})
			q.pass(l)
			if _, err := q.stay(gone, l, behind); err == nil {
				q.pass(l)
			}
			alone(t, q)
		}
	})
}

// A holder that let go before the queue heard of it holds nobody up: its lock may have been lost at once.
func TestHolderThatHasLetGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		holder := &Holder{Caller: wanting{}}
		q.LetGo(holder)
		q.Acquired(holder)
		alone(t, q)

		q.enter(wanting{})
		holder = &Holder{Caller: wanting{}}
		q.LetGo(holder)
		q.acquired(holder, true, false)
		alone(t, q)
	})
}

// While a caller contends, another comes and goes that has the key without a place. The one that contends is still the
// only one.
func TestHolderBesideACallerThatContends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		l, _ := q.enter(wanting{})
		holder := &Holder{Caller: wanting{}}
		q.Acquired(holder)
		q.LetGo(holder)
		_, behind := q.enter(wanting{})
		if behind == nil {
			t.Fatal("two callers contend")
		}
		q.pass(l)
		<-behind.turn
		q.pass(l)
		alone(t, q)
	})
}
