package waitqueue

import (
	"context"
	"errors"
)

// errElsewhere ends a turn in which another of the caller's keys was found in the way.
var errElsewhere = errors.New("another of the keys is in the way")

// WaitAll is Wait for a caller who wants several keys at once. It waits for one that is in the way,
// as if it wanted no other, and tries for all of them when its turn has come. Where another is in
// the way then, it gives its turn on and goes to the queue for that one, with its first ticket, so
// that it does not begin anew.
//
// There is no deadlock: a call that waits has nothing on any node, as a failed attempt is undone, and
// has a turn in no other queue, of this process or between processes.
//
// rule: waits-with-nothing
func (q *Queue) WaitAll(ctx context.Context, c Caller) error {
	for {
		if err := q.Wait(ctx, c); !errors.Is(err, errElsewhere) {
			return err
		}
	}
}
