package waitqueue

import (
	"context"
	"errors"
)

// ErrElsewhere ends a turn in which another of the caller's keys was found in the way.
var ErrElsewhere = errors.New("another of the keys is in the way")

// lostTurns is how many turns a caller who wants several keys loses to others of them, before it is to
// take them one by one.
const lostTurns = 3

// WaitAll is Wait for a caller who wants several keys at once. It waits for one that is in the way,
// as if it wanted no other, and tries for all of them when its turn has come. Where another is in
// the way then, it gives its turn on and goes to the queue for that one, with its first ticket, so
// that it does not begin anew. When it has lost lostTurns so, the error is ErrElsewhere.
//
// There is no deadlock: a call that waits has nothing on any node, as a failed attempt is undone, and
// has a turn in no other queue, of this process or between processes.
//
// rule: waits-with-nothing
func (q *Queue) WaitAll(ctx context.Context, c Caller) error {
	for lost := 0; ; lost++ { // the first was no turn, but a look at what is in the way
		if err := q.Wait(ctx, c); lost == lostTurns || !errors.Is(err, ErrElsewhere) {
			return err
		}
	}
}
