package redistest

import (
	"context"
	"errors"
	"time"
)

// errExited says that the server ended while something was awaited of it.
var errExited = errors.New("the server process has ended")

// pause waits for d, unless ctx or the process ends first.
func pause(ctx context.Context, exited <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-exited:
		return errExited
	}
}

// await asks check until it reports true, ctx is done or exited is closed. It
// asks often at first and every 20 ms in the end. Its error holds check's last.
func await(ctx context.Context, exited <-chan struct{}, check func(context.Context) (bool, error)) error {
	step := 500 * time.Microsecond
	for {
		done, last := check(ctx)
		if done {
			return nil
		}
		if err := pause(ctx, exited, step); err != nil {
			return errors.Join(err, last)
		}
		step = min(step*3/2, 20*time.Millisecond)
	}
}
