package redlatch

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// MaxReleases is how many locks Close releases at once.
const MaxReleases = maxReleases

// CloseError returns what Close does of errors.
func CloseError(errs []error) error { return closeError(errs) }

// KindOf returns what a failed vote for op amounts to.
func KindOf(op string, nodes []NodeAnswer) error { return newQuorumError(op, "x", nodes).kind }

// ReleaseErrorOf returns what Unlock of l says where its nodes answer so.
func ReleaseErrorOf(l *Lock, verdicts ...Verdict) error {
	votes := make([]vote.Answer, len(verdicts))
	for i, v := range verdicts {
		votes[i].Verdict = v
	}
	return l.releaseError(votes)
}

// QueuedAfter returns what a call for "x" is told that failed before as its nodes answered, because of a caller of
// its own client if here, and gets a place then.
func QueuedAfter(c *Client, before []NodeAnswer, here bool, place vote.Position) error {
	failure := newQuorumError("lock", "x", before)
	failure.here = here
	return (&call{client: c, name: "x", failure: failure}).Queued(place)
}

// NumberAfter returns the number of a call for several names, and of one for one of them, after tries by places with
// those numbers.
func NumberAfter(c *Client, numbers ...uint64) (whole, single uint64) {
	of := &call{client: c, name: "x", key: "x", several: &several{names: []string{"x", "y"}, keys: []string{"x", "y"}}}
	for _, number := range numbers {
		of.failure = newQuorumError("lock", "x", c.answers(nil))
		of.follow(vote.Acquire{Key: "x", With: &vote.Keys{"y"}, Ticket: vote.Ticket{Number: number}}, nil)
	}
	return of.Number(), of.single(context.Background(), "y").Number()
}

// RingInVain acts as if the alarm of l had rung and l had been found at its end, though l is still
// held.
func RingInVain(l *Lock) {
	l.alarm.Stop()
	l.checkEnd()
}

// WillRing stops the alarm of l, and reports whether it was to ring.
func WillRing(l *Lock) bool { return l.alarm.Stop() }

// LoseUntold acts as if a goroutine had found that l is lost because of why, and had not come to
// telling anybody.
func LoseUntold(l *Lock, why error) { l.lease.Lose(why) }

// UnlockSlowly acts as if a goroutine had called Unlock of l and not come to asking the nodes. goOn is what it
// does then.
func UnlockSlowly(l *Lock) (goOn func() error) {
	entered := l.client.enterWith(l)
	why, first := l.unlock(ErrReleased)
	return func() error {
		if entered == nil {
			defer l.client.calls.Done()
		}
		if err := l.drop(); first {
			return err
		}
		return why
	}
}

// RingLate acts as if a goroutine had read the clock to set the alarm of l, and had been stopped for
// that long before it did.
func RingLate(l *Lock, stopped time.Duration) {
	now := l.client.clock.Now()
	l.mu.Lock()
	next := l.untilNext(now)
	l.mu.Unlock()
	time.Sleep(stopped)
	l.setAlarm(now, next)
}

// RestsOfTryLock returns how long TryLock rests in all where the votes are split each time.
func RestsOfTryLock(c *Client) (all time.Duration) {
	for try := range splitTries {
		all += c.pause(&QuorumError{}, try)
	}
	return all
}

// PermitNodes returns the client's nodes in the order in which they are asked for a permit of the lock with that key.
func PermitNodes(c *Client, key string) []int { return c.waitqueue.Order(node.PermitsKey(key)) }

// ObservedNode returns the node that an observer of the lock with that key looks at.
func ObservedNode(c *Client, key string) int { return c.waitqueue.Arbiter(key) }

// ObservedKeys returns how many keys are observed. Nobody may begin or end to observe meanwhile.
func ObservedKeys(c *Client) int {
	return reflect.ValueOf(&c.observers).Elem().FieldByName("of").Len()
}

// CountRenewals returns how many renewals an hour the client counts for its locks, from now on. It has no lock yet.
func CountRenewals(c *Client) *atomic.Int64 {
	r := &countedRenewals{Renewer: c.renewals}
	c.renewals = r
	return &r.hourly
}

// countedRenewals counts the renewals of another Renewer as that does.
type countedRenewals struct {
	quorum.Renewer
	hourly atomic.Int64
}

func (r *countedRenewals) Add(each time.Duration) {
	r.hourly.Add(int64(time.Hour / each))
	r.Renewer.Add(each)
}

func (r *countedRenewals) Remove(each time.Duration) {
	r.hourly.Add(-int64(time.Hour / each))
	r.Renewer.Remove(each)
}
