// Package conformance is the suite that every redlatch.Locker passes: the library's client on
// real servers, and the one of package redlatchtest in memory, there in virtual time too.
package conformance

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/script"
)

// Client is what the suite asks of a client.
type Client interface {
	redlatch.Locker
	RLock(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error)
	LockAll(ctx context.Context, names []string, options ...redlatch.Option) (*redlatch.Lock, error)
	Acquire(ctx context.Context, name string, k int, options ...redlatch.Option) (*redlatch.Lock, error)
	Campaign(ctx context.Context, name string, fn func(ctx context.Context) error, options ...redlatch.Option) error
	Observe(ctx context.Context, name string) iter.Seq2[redlatch.Holder, error]
	Close() error
}

// Stage is the nodes of one test. Its names are its own.
type Stage interface {
	// Open opens a client, which is closed after the test. The TTL is 20 s and MaxTTL 30 s; of c,
	// MaxHold is used.
	Open(t *testing.T, c redlatch.Config) Client
	// Nodes is how many nodes there are.
	Nodes() int
	// Value is what node i has at a lock's key, "" for nothing, and Left for how long, which is not
	// positive for nothing.
	Value(t *testing.T, i int, key string) string
	Left(t *testing.T, i int, key string) time.Duration
	// Set has node i have the value at the key for a minute, "" for nothing, and tells nobody.
	Set(t *testing.T, i int, key, value string)
}

// Test is one test of the suite. It starts no other, so that it may run in a bubble of
// testing/synctest.
type Test struct {
	Name string
	Run  func(t *testing.T, s Stage)
}

// Tests returns the suite.
func Tests() []Test {
	return []Test{
		{"exclusion/one holder", oneHolder},
		{"exclusion/many callers", manyCallers},
		{"exclusion/in the order of coming", inOrder},
		{"exclusion/in the order of coming, of several clients", inOrderOfClients},
		{"exclusion/try", tryDo},
		{"expiry/without renewal", withoutRenewal},
		{"expiry/of a holder that is gone", holderIsGone},
		{"expiry/renewal", renewal},
		{"expiry/MaxHold", maxHold},
		{"expiry/guard", guard},
		{"extension/after the end", extendAfterLapse},
		{"extension/errors", extendErrors},
		{"loss/at once when impossible", lostAtOnce},
		{"loss/found by a renewal", doLosesTheLock},
		{"loss/found by the release", unlockWhatIsGone},
		{"cancel/a waiter", cancelledWaiter},
		{"cancel/with a ctx that is done", doneContext},
		{"cancel/the client is closed", closed},
		{"release/twice", unlockTwice},
		{"release/at once", unlockAtOnce},
		{"release/with a ctx that is done", unlockWithDoneContext},
		{"do/its result", doResult},
		{"do/panics", doPanics},
		{"do/the ctx of its caller", doAndItsCallersContext},
		{"do/the client is closed", doWhenTheClientCloses},
		{"do/inside another", doInsideDo},
		{"held/in a ctx", heldInContext},
		{"held/refused to wait for itself", heldByThisCall},
		{"lead/its result", leadResult},
		{"lead/panics", leadPanics},
		{"lead/one after the other", leadInTurn},
		{"lead/again after a loss", leadAgain},
		{"lead/its own error after a loss", leadFails},
		{"lead/until it has returned", leadUntilReturned},
		{"lead/the client is closed", leadWhenTheClientCloses},
		{"lead/a candidate is cancelled", leadCancelled},
		{"lead/refused", leadRefused},
		{"observe/each change", observeChanges},
		{"observe/a key of another library", observeForeign},
		{"observe/its end", observeEnds},
		{"min hold/waiter of another client", minHoldOfAnotherClient},
		{"min hold/waiter of the same", minHoldOfTheSame},
		{"min hold/each caller", minHoldOfEachCaller},
		{"min hold/the lock", minHoldAndTheLock},
		{"min hold/outlives the client", minHoldOutlivesTheClient},
		{"min hold/of a lost lock", minHoldOfALostLock},
		{"min hold/refused", minHoldRefused},
		{"several/names of one lock", severalNames},
		{"several/waiting", severalWait},
		{"several/at once", severalAtOnce},
		{"several/beside another library's", severalAndForeign},
		{"several/extended and lost", severalExtended},
		{"several/refused", severalRefused},
		{"several/one by one", severalSingly},
		{"several/one by one, given up", severalSinglyGivenUp},
		{"several/one by one, one lost", severalSinglyLost},
		{"shared/readers or a writer", readersOrAWriter},
		{"shared/tokens", readersTokens},
		{"shared/beside another library's", readersAndForeign},
		{"shared/a waiting writer first", waitingWriterFirst},
		{"shared/waiting readers together", waitingReadersTogether},
		{"shared/each its own expiry", readersExpire},
		{"shared/many at once", readersAtOnce},
		{"shared/refused", readersRefused},
		{"permits/slots", permitSlots},
		{"permits/in the order of coming", permitsInOrder},
		{"permits/several at once", permitsTogether},
		{"permits/many callers", permitsOfMany},
		{"permits/given up", permitsGivenUp},
		{"permits/extended and lost", permitsExtended},
		{"permits/without the queue", permitsWithoutQueue},
		{"permits/refused", permitsRefused},
	}
}

// OfMutex reports whether the test is of one name that has one holder, which is what every engine locks.
func (t Test) OfMutex() bool {
	of, _, _ := strings.Cut(t.Name, "/")
	return !slices.Contains([]string{"several", "shared", "permits"}, of)
}

// awaitGone waits until no node has anything at the key. What has much of its time left must have been
// deleted, and not have run out.
func awaitGone(t *testing.T, s Stage, key string) {
	t.Helper()
	for i := range s.Nodes() {
		left := s.Left(t, i, key)
		took := locktest.Await(t, key+" is gone", func() bool { return s.Value(t, i, key) == "" })
		if left > 10*time.Second && took > left-time.Second {
			t.Errorf("%s ran out on node %d: it had %v left, and is gone after %v", key, i, left, took)
		}
	}
}

// soon is how long at most a lock that is released takes to be had by one who waits, who would look
// himself a little later: a busy machine may be late, but not each time.
const soon = script.Grace / 2

// awaitThere waits until all nodes have something at the key.
func awaitThere(t *testing.T, s Stage, key string) {
	t.Helper()
	for i := range s.Nodes() {
		locktest.Await(t, key+" is there", func() bool { return s.Value(t, i, key) != "" })
	}
}

// removed has the locks of a test removed at its end, which would be kept for long.
func removed(t *testing.T, s Stage, keys ...string) {
	t.Cleanup(func() {
		for i := range s.Nodes() {
			for _, key := range keys {
				s.Set(t, i, key, "")
			}
		}
	})
}

// stolen is how many nodes take a lock away when another has it there.
func stolen(s Stage) int { return s.Nodes()/2 + 1 }
