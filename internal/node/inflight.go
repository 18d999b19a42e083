package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// A command whose caller has stopped waiting is abandoned, and still in the pipe of a node that does
// not answer. It counts as under way until it is over: otherwise a node that hangs would get commands
// without end. Where a connection answers in order, one PING tells that all commands sent before it are over;
// where it does not, each abandoned command is waited for by itself. Meanwhile the node is silent, and
// after Options.Patience it is asked for no further votes.

// maxInFlight bounds the votes and, apart from them, the releases under way on one connection. Both
// together stay below the connection's own queue, which would block without looking at ctx.
const maxInFlight = 800

// semaphore bounds the commands under way: it has one element for each of them.
type semaphore chan struct{}

// take waits until one more command may be under way. The error wraps driver.ErrNotSent.
func (s semaphore) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return driver.NotSent(fmt.Errorf("%d commands are waiting for the node", cap(s)))
	}
}

// free ends what take began.
func (s semaphore) free() { <-s }

// inFlight counts the commands under way on one connection or, in a Cluster, for one hash slot: commands
// that wait for one master take no place from those for another. Votes for all hash slots of a master are
// counted together, where the masters said before that it has them. What else is sent may go to a master
// to which the hash slot has moved since, and its former master is not to blame for that.
type inFlight struct {
	// releases are counted apart: a node that hangs and is full of votes still takes releases.
	votes, releases semaphore

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// abandoned has, for each abandoned command that the next PING is to show over, the semaphore to
	// free then.
	abandoned []semaphore
	// unanswered counts the abandoned commands that are waited for one by one.
	unanswered int
	// silentSince is when the node was last heard, or when the first command was abandoned; zero when
	// none is.
	silentSince time.Time
}

func newInFlight() *inFlight {
	return &inFlight{votes: make(semaphore, maxInFlight), releases: make(semaphore, maxInFlight)}
}

// silence returns for how long the node has not answered an abandoned command.
func (f *inFlight) silence() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silentSince.IsZero() {
		return 0
	}
	return time.Since(f.silentSince)
}

// abandon leaves it to the probe to free taken, and reports whether the caller must start one.
func (f *inFlight) abandon(taken semaphore) (start bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.abandoned = append(f.abandoned, taken)
	start = f.silentSince.IsZero()
	if start {
		f.silentSince = time.Now()
	}
	return start
}

// probe frees what abandoned commands have taken, until there are none. ping returns when all commands sent before it are
// over: answered, or lost with the connection.
func (f *inFlight) probe(ping func()) {
	for {
		f.mu.Lock()
		over := f.abandoned
		f.abandoned = nil
		if len(over) == 0 {
			f.silentSince = time.Time{}
			f.mu.Unlock()
			return
		}
		f.silentSince = time.Now()
		f.mu.Unlock()

		ping()
		for _, taken := range over {
			taken.free()
		}
	}
}

// await counts an abandoned command as unanswered until over has returned, which it does when the
// command is over.
func (f *inFlight) await(over func()) {
	f.mu.Lock()
	f.unanswered++
	if f.silentSince.IsZero() {
		f.silentSince = time.Now()
	}
	f.mu.Unlock()
	over()
	f.mu.Lock()
	f.unanswered--
	f.silentSince = time.Now()
	if f.unanswered == 0 {
		f.silentSince = time.Time{}
	}
	f.mu.Unlock()
}

// silence returns for how long a command that inFlight counts, or a vote, has been abandoned and unanswered.
func (n *Node) silence(inFlight *inFlight) time.Duration {
	silence := inFlight.silence()
	if votes := n.votes.Load(); votes != inFlight {
		silence = max(silence, votes.silence())
	}
	return silence
}

// ended frees what a command has taken that was answered or ended with err, and returns the command's
// error. Where the caller has stopped waiting, the command is abandoned, or was not sent in time. After any
// other error than a reply, and where the server is a replica, the next command inspects the server anew.
func (n *Node) ended(ctx context.Context, inFlight *inFlight, taken semaphore, err error) error {
	switch {
	case isByReplica(err):
		n.link.distrust() // no longer a master, though it may be one again before it is next asked
	case err == nil || isReply(err):
	case errors.Is(err, driver.ErrNotSent) && ctx.Err() != nil:
		if errors.Is(err, ctx.Err()) { // a step's own, which nobody has cancelled, or one of which the caller knows
			err = driver.NotSent(errNoTime)
		}
	case ctx.Err() != nil:
		n.abandon(inFlight, taken)
		return errNoAnswer
	default:
		n.link.distrust()
	}
	taken.free()
	return err
}

// abandon has taken freed when the abandoned command is over.
func (n *Node) abandon(inFlight *inFlight, taken semaphore) {
	if d, ok := n.conn.(driver.Drainer); ok {
		n.background.Go(func() {
			inFlight.await(func() {
				d.Drain(n.options.slotTag)
				taken.free()
			})
		})
		return
	}
	if inFlight.abandon(taken) {
		n.background.Go(func() {
			inFlight.probe(func() {
				if _, err := n.conn.Do(context.Background(), "PING"); err == nil {
					n.noteReach(nil)
				}
			})
		})
	}
}

// mastersInFlight has the inFlight for votes of each master of a Cluster, by its run.
type mastersInFlight struct {
	mu sync.Mutex // guards of; nothing is called while it is held
	of map[string]*inFlight
}

func (f *mastersInFlight) to(run string) *inFlight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[run] == nil {
		f.of[run] = newInFlight()
	}
	return f.of[run]
}
