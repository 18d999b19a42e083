package waitqueue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
		c := &trying{try: func(n int) Failure {
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
