package gocronlock

import (
	"context"
	"errors"
	"testing"
)

// A call whose ctx ends does not wait for the try of another.
func TestElectorWaitsForCtx(t *testing.T) {
	t.Parallel()
	e := NewElector(nil, "leader")
	e.turn <- struct{}{} // another call has begun
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the job is late")
	cancel(why)
	if err := e.IsLeader(ctx); !errors.Is(err, why) {
		t.Errorf("IsLeader: %v", err)
	}
}
