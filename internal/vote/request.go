// Package vote has the words that the vote and a voting node share: what is
// asked of a node, and what it may answer.
package vote

import (
	"strings"
	"sync"
	"time"
)

// The requests, one type for each step. Key is the lock's key, from which the node makes the names
// of the keys beside it. ID is the holder id under which the key is held or is to be held. It is
// fresh for every attempt: otherwise a late release of an earlier attempt could match a later one.
// With has the further keys where several names are locked at once: a step is done for Key and all
// of With, or for none.

// Keys are several keys. A request has a pointer to them, or nil, so that a request for a single
// key is hardly larger for it.
type Keys []string

// Acquire asks for the key.
type Acquire struct {
	Key, ID string
	With    *Keys
	// Arbiters, for a reader, has the nodes that may keep the wait queue, in the order of the name:
	// the first of them that answers has to agree.
	Arbiters []int
	// TTL is how long the node keeps the key.
	TTL time.Duration
	// Proposed is the client's wall clock in microseconds when the attempt
	// started, from which a node that remembers no larger token takes its
	// counter.
	Proposed uint64
	// From is the holder who transfers its keys to this attempt, if any.
	From string
	// Froms, if any, are the holders who transfer the keys of With, one for each key.
	Froms *[]string
	// Ticket is the attempt's place in the wait queue for Key, if it has one. An attempt without a
	// ticket leaves the key to a waiter that was woken up, unless it may barge.
	Ticket Ticket
	Barge  bool
	// More is how many counters the attempt wants besides one, all in a row: it is granted under
	// the last of them.
	More uint8
	// Reused: the ID is a caller's own and may have been used before. A key under it
	// is then in the way like any other.
	Reused bool
	// Shared: a reader asks for the key, which it has together with other readers.
	Shared bool
	// Slots, if not 0, asks for one of so many slots, trying them from First on. Key is then the
	// key of their queue.
	Slots, First uint16
}

// Confirm asks a node that granted under Granted to store Token, which is larger than Granted.
type Confirm struct {
	Key, ID        string
	With           *Keys
	Granted, Token uint64
	Shared         bool
}

// Extend asks a node to keep the key for TTL from now, or, in a repair, to take it back after
// losing it.
type Extend struct {
	Key, ID string
	With    *Keys
	TTL     time.Duration
	// Token is stored where the node remembers a smaller one.
	Token  uint64
	Shared bool
}

// Release asks a node to delete the key if it is held under ID, and to wake up the next waiter.
type Release struct {
	Key, ID string
	With    *Keys
	// TTL is how long the node keeps the key at most.
	TTL time.Duration
	// Token, if not zero, is stored where the node remembers a smaller one.
	Token uint64
	// Ticket, in the release of an attempt that failed, is the waiter's place in the wait queue for
	// Key, which it keeps. With Number 0 it gives the place up.
	Ticket Ticket
	// Transfer: whoever the node wakes up may take over the holder's keys on the
	// other nodes.
	Transfer bool
	// Waiting: others were in the wait queue for the key on the node.
	Waiting bool
	Shared  bool
}

// Enqueue asks for a place in the wait queue for the key, or says that the waiter is still there.
// Watch asks to be told of changes to the key, for a holder that wakes nobody up.
type Enqueue struct {
	Key    string
	Ticket Ticket
	Watch  bool
	// Slots, if not 0, is how many slots there are; the waiter waits for one of them.
	Slots uint16
}

// Reader begins the name of a waiter that is a reader.
const Reader = "-+"

// Ticket is a waiter's place in the wait queue for a key.
type Ticket struct {
	// Waiter is the waiter's name. A reader's begins with Reader. A dash, behind Reader if that is
	// there, says that the waiter hears no messages. The name of one that hears them in a Cluster
	// has the tag of the key's slot there, in braces.
	Waiter string
	// Number orders the queue; 0 asks for a new place, at its end.
	Number uint64

	// What follows is for this process, and not sent. Node is the index of the node that keeps the
	// queue. Undoing, if set, counts the releases there of attempts that failed. The wait queue waits
	// for these before it gives up the place, because such a release may take the place anew.
	Node    int
	Undoing *sync.WaitGroup
}

// Waiter returns the name that a waiter has in its own process, given the name by which a node
// knows it. It takes off what the node added to say how the waiter hears: a dash or, in a Cluster,
// the slot's tag in braces.
func Waiter(name string) string {
	name, reads := strings.CutPrefix(name, Reader)
	name = strings.TrimPrefix(name, "-")
	if tag, rest, ok := strings.Cut(name, "}"); ok && strings.HasPrefix(tag, "{") {
		name = rest
	}
	if reads {
		name = Reader + name
	}
	return name
}
