package waitqueue

import (
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Caller is somebody who wants a key. The goroutine that waits for the key calls its methods, one
// at a time; but the holder who transfers the key may call Request meanwhile. No method is called
// while a mutex is held.
type Caller interface {
	// Key is the key to wait for: for a caller that wants several keys, one that is in the way.
	// Number is the ticket that the caller had in the queue for another of its keys, 0 for none.
	Key() string
	Number() uint64
	// Slots is how many callers may have the key at once if it is the key of slots, else 0.
	Slots() uint16
	// May returns why no further attempt may be made, or nil.
	May() error
	// Request is what an attempt that begins now asks for.
	Request() vote.Acquire
	// Try makes one attempt. If it returns no lease, the attempt has failed.
	Try(request vote.Acquire) (*quorum.Lease, Failure)
	// Hold makes the caller a holder.
	Hold(lease *quorum.Lease) *Holder

	// Listens reports whether the caller wants to be told what it waits for while others of this
	// process are before it. Behind tells it: their lock, or what stands in their way.
	Listens() bool
	Behind(holder *Holder, failure error)
	// Queued takes in the arbiter's answer, and returns what stands in the way according to it.
	Queued(p vote.Position) error
	// Report tells the user what the caller waits for, if that is wanted and due.
	Report()
	// Rest waits for a random while after a number of failures in a row. Its error, and Ended's for
	// a caller whose time is over, say what stood in the way.
	Rest(failures int) error
	Ended() error
}

// Failure is why an attempt failed.
type Failure struct {
	// Err is the error that the caller is told.
	Err error
	// Held: another holder has the key. Final: waiting does not cure it. Elsewhere: another of the
	// caller's keys is in the way, and is the caller's Key from now on. Unsent: nothing was asked of
	// the nodes, and the caller cannot have the key for now.
	Held, Final, Elsewhere, Unsent bool
}

// Holder is a caller that holds its key.
type Holder struct {
	Caller Caller

	// local is where this process waits for the key. gone: the holder has let go of it. The queue's
	// mutex guards both.
	local *local
	gone  bool
}
