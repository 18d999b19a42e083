package guides

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// nightly runs job if no other machine does, or has just done so.
func nightly(ctx context.Context, client *redlatch.Client, job func(ctx context.Context) error) error {
	err := client.TryDo(ctx, "sendInvoices", job,
		redlatch.WithMinHold(20*time.Second), // lockAtLeastFor
		redlatch.WithMaxHold(14*time.Minute)) // lockAtMostFor, of a job that hangs
	if errors.Is(err, redlatch.ErrHeld) {
		return nil
	}
	return err
}

// The second machine leaves the job out, though the first has done it already; what the job says
// comes through.
func TestNightly(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	failure := errors.New("the job failed")
	ran := 0
	job := func(context.Context) error { ran++; return failure }
	locktest.Await(t, "the first machine runs it", func() bool {
		err := nightly(t.Context(), locktest.Open(t, c), job)
		return errors.Is(err, failure) || !locktest.Late(err)
	})
	second := locktest.Open(t, c)
	locktest.Await(t, "the second machine finds it held", func() bool {
		err := nightly(t.Context(), second, job)
		return err == nil || !locktest.Late(err)
	})
	if ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
}
