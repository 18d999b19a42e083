package waitqueue

import (
	"context"
	"errors"
)

// ErrElsewhere ends a turn in which another of the caller's keys was found in the way.
var ErrElsewhere = errors.New("another of the keys is in the way")

// lostTurns is how many turns a caller that wants several keys loses to others before it must take
// the keys one by one.
const lostTurns = 3

// WaitAll is Wait for a caller that wants several keys at once. It waits for one that is in the
// way, as if it wanted no other, and tries for all of them when its turn has come. If another key
// is in the way then, it passes its turn on and goes to the queue for that key with its first
// ticket, so that it does not begin anew. After it has lost lostTurns turns that way, or one more
// where the key that it had at first was in the way, the error is ErrElsewhere.
//
// There is no deadlock: a call that waits has nothing on any node, because a failed attempt is
// undone, and has a turn in no other queue, inside this process or between processes.
//
// rule: waits-with-nothing
func (q *Queue) WaitAll(ctx context.Context, c Caller) error {
	for lost := 0; ; lost++ { // the first time it mostly had no turn, but found out what is in the way
		if err := q.Wait(ctx, c); lost == lostTurns || !errors.Is(err, ErrElsewhere) {
			return err
		}
	}
}
