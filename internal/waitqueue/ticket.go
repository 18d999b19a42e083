package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// These say how often the arbiter is asked. A waiter that is woken up needs none of it.
const (
	// heartbeat keeps the place: three may be lost before the place lapses.
	heartbeat = script.Patience * 3 / 10
	// poll is how often the first in the queue asks where the server cannot tell of a release.
	poll = 30 * time.Millisecond
	// late is how long after a key's expiry the first in the queue looks.
	late = time.Millisecond
)

// errNoQueue says that no node keeps the wait queue at present.
var errNoQueue = errors.New("no node keeps the wait queue")

// Ticket is this process's place in the wait queue for one key. One goroutine uses it at a
// time.
type Ticket struct {
	queue  *Queue
	key    string
	waiter string
	order  []int
	// atArbiter is the ticket as the arbiter knows it.
	atArbiter vote.Ticket
	// position is the last answer; it is Held if a node keeps the place. begun is when the present
	// turn began, zero when it is not this process's turn.
	position vote.Position
	begun    time.Time
	// attempt is the holder id of the last attempt. from is the holder, if any, who left its keys
	// to this process. It holds nothing any more, so it does no harm if somebody has taken them
	// over.
	attempt, from string
	// undoing counts the releases at the arbiter that undo this ticket's attempts. again: there was more than one
	// attempt.
	undoing *sync.WaitGroup
	again   bool
	// slots is how many slots there are when one of them is waited for; 0 for a lock.
	slots uint16
	// watch asks to be told of changes to the key, because its holder wakes nobody up.
	watch bool
	// woken gets the notices for this place. If there are two, the last one stays that makes it this
	// process's turn.
	woken chan notice
}

// notice says that something may have changed.
type notice struct {
	// turn: the node keeps the key for us. from is the holder that has left us its other keys.
	turn bool
	from string
}

// signal sends n to woken. It is called with queue.mu held.
func (t *Ticket) signal(n notice) {
	select {
	case old := <-t.woken:
		if !n.turn {
			n = old
		}
	default:
	}
	t.woken <- n
}

// Await returns nil when it is time for an attempt: the process was woken up, or it is the first in
// the queue and the key is free. It returns errNoQueue when no node keeps the queue, and ctx's cause
// when ctx is done. It first waits for rest, or until it is woken up. told is called with each of
// the arbiter's answers.
func (t *Ticket) Await(ctx context.Context, rest time.Duration, told func(vote.Position)) error {
	for {
		if rest > 0 {
			woken, err := t.wait(ctx, rest)
			if woken || err != nil {
				return err
			}
		}
		t.takeNotice() // the answer tells as much, if it comes
		if err := t.enqueue(ctx); err != nil {
			return err
		}
		p := t.position
		told(p)
		first := p.Ahead == 0
		if first && p.Reserved() {
			t.begin(p.From)
			return nil
		}
		if p.Holder != t.attempt {
			t.begun = time.Time{}
		}
		watched := t.watch
		t.watch = first && t.queue.options.Foreign(p.Holder)
		if rest = t.pause(); t.watch && !watched {
			rest = 0
		}
	}
}

// wait returns after d, or earlier if something may have changed. If woken is true the node keeps
// the key for this process.
func (t *Ticket) wait(ctx context.Context, d time.Duration) (woken bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case n := <-t.woken:
		if n.turn {
			t.begin(n.from)
		}
		return n.turn, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// pause returns how long the waiter waits before it asks again.
func (t *Ticket) pause() time.Duration {
	p, d := t.position, heartbeat-heartbeat/20+t.queue.options.Draw(heartbeat/10)
	// rule: wait-has-a-timer
	if p.Reserved() || p.Ahead == 0 && p.Left >= 0 {
		d = min(d, p.Left+late)
	}
	if !p.Hears || t.watch && !p.Watched {
		d = min(d, poll)
	}
	return d
}

func (t *Ticket) begin(from string) {
	if t.begun.IsZero() {
		t.begun = time.Now()
	}
	t.from = from
}

// enqueue asks the nodes in order until one keeps the queue. A node whose answer was late may have
// given a place that this process does not know of, also under another name where the process is now
// told of wake-ups, or is not any more: it is given up, as it would be woken up there in vain. So is
// the place that it had if no node answers.
func (t *Ticket) enqueue(ctx context.Context) error {
	for _, i := range t.order {
		step, cancel := context.WithTimeout(ctx, t.queue.options.Timeout)
		p := t.queue.nodes[i].Enqueue(step, vote.Enqueue{Key: t.key, Ticket: t.atArbiter, Watch: t.watch, Slots: t.slots})
		cancel()
		there := t.queued() && t.atArbiter.Node == i && t.atArbiter.Waiter == p.Ticket.Waiter
		if !there && (p.Verdict == vote.Unknown || p.Verdict == vote.Held && ctx.Err() != nil) {
			t.queue.leave(i, vote.WakeUp{Key: t.key, Waiter: p.Ticket.Waiter, From: p.From}, nil)
		}
		if ctx.Err() != nil {
			if there {
				t.from = cmp.Or(p.From, t.from)
			}
			return context.Cause(ctx)
		}
		if p.Verdict == vote.Held {
			if t.queued() && !there {
				t.abandon()
			}
			p.Ticket.Node = i
			t.position, t.atArbiter = p, p.Ticket
			return nil
		}
	}
	if t.queued() {
		t.abandon()
		t.position = vote.Position{}
	}
	return errNoQueue
}

// Attempt adds the ticket to an attempt's request. A turn lasts no longer than the arbiter keeps
// the key for a waiter that was woken up. An attempt that fails after that loses the place, so that
// a waiter that cannot get its quorum holds nobody up.
func (t *Ticket) Attempt(r vote.Acquire) vote.Acquire {
	if !t.begun.IsZero() && time.Since(t.begun) > script.Grace {
		t.atArbiter.Number = 0
		t.begun = time.Time{}
	}
	if t.undoing == nil {
		t.undoing = new(sync.WaitGroup)
	}
	t.again, t.attempt = t.attempt != "", r.ID
	r.Ticket, r.From = t.atArbiter, t.from
	r.Ticket.Undoing = t.undoing
	return r
}

// Taken ends the turn of a process that has the lock. Heard must follow, with the arbiter's answer to
// the attempt.
func (t *Ticket) Taken() {
	t.forget()
	t.from = ""
}

// Heard ends the place. Where the arbiter has granted, it ended with that step, but for what undoes an
// earlier attempt.
func (t *Ticket) Heard(arbiter vote.Answer) {
	if t.queued() && (t.again || arbiter.Verdict != vote.Granted) {
		t.abandon()
	}
}

// Leave ends the place in the background, if there is one: t may be nil. If it was this process's
// turn, the next waiter is woken up.
func (t *Ticket) Leave() {
	if t == nil {
		return
	}
	t.forget()
	t.takeNotice()
	if t.queued() {
		t.abandon()
	}
}

// takeNotice takes in a notice that has come, and remembers who has left its keys to this process.
func (t *Ticket) takeNotice() {
	select {
	case n := <-t.woken:
		t.from = cmp.Or(n.from, t.from)
	default:
	}
}

// Arbiter returns the index of the node that keeps the queue.
func (t *Ticket) Arbiter() int { return t.atArbiter.Node }

// queued reports whether a node keeps the place.
func (t *Ticket) queued() bool { return t.position.Verdict == vote.Held }

func (t *Ticket) forget() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.tickets[t.key], t.waiter)
	if len(q.tickets[t.key]) == 0 {
		delete(q.tickets, t.key)
	}
}

func (t *Ticket) abandon() {
	t.queue.leave(t.atArbiter.Node, vote.WakeUp{Key: t.key, Waiter: t.atArbiter.Waiter, From: t.from}, t.undoing)
	t.undoing = nil // a WaitGroup that is waited for is not added to
}
