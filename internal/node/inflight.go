package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// maxInFlight bounds the votes and, apart from them, the releases under way on
// one connection. Both together stay below the connection's own queue, which
// would block without looking at ctx.
const maxInFlight = 800

// inFlight counts the commands under way on one connection or, in a Cluster, for one hash slot: commands
// that wait for one master take no place from those for another. Votes for all hash slots of a master are
// counted together, where the masters said before that it has them. What else is sent may go to a master
// to which the hash slot has moved since, and its former master is not to blame for that.
//
// A command whose caller stopped waiting is still in the pipe of a node that does not answer, and
// its slot must not be given to another. Where replies come in order, one PING sent after the
// command tells when it is over.
type inFlight struct {
	votes, releases chan struct{}

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// abandoned counts the slots of commands that nobody waits for any more.
	abandoned struct{ votes, releases int }
	// owed counts the abandoned commands that are waited for one by one.
	owed int
	// silentSince is when the pipe was last found silent; zero when nothing is abandoned.
	silentSince time.Time
}

func newInFlight() *inFlight {
	return &inFlight{votes: make(chan struct{}, maxInFlight), releases: make(chan struct{}, maxInFlight)}
}

// take waits for a slot. The error wraps driver.ErrNotSent.
func (f *inFlight) take(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return driver.NotSent(fmt.Errorf("%d commands are waiting for the node", cap(slots)))
	}
}

func (f *inFlight) free(slots chan struct{}) { <-slots }

// abandon leaves a slot to the probe, and reports whether the caller must start one.
func (f *inFlight) abandon(slots chan struct{}) (start bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slots == f.votes {
		f.abandoned.votes++
	} else {
		f.abandoned.releases++
	}
	start = f.silentSince.IsZero()
	if start {
		f.silentSince = time.Now()
	}
	return start
}

// probe gives abandoned slots back until there are none. ping returns when all commands sent before
// it are over: answered, or lost with the connection.
func (f *inFlight) probe(ping func()) {
	for {
		f.mu.Lock()
		over := f.abandoned
		f.abandoned.votes, f.abandoned.releases = 0, 0
		if over.votes+over.releases == 0 {
			f.silentSince = time.Time{}
			f.mu.Unlock()
			return
		}
		f.silentSince = time.Now()
		f.mu.Unlock()

		ping()
		for range over.votes {
			f.free(f.votes)
		}
		for range over.releases {
			f.free(f.releases)
		}
	}
}

// owe counts a command that nobody waits for any more as owed until over has returned, which it does
// when the command is over.
func (f *inFlight) owe(over func()) {
	f.mu.Lock()
	f.owed++
	if f.silentSince.IsZero() {
		f.silentSince = time.Now()
	}
	f.mu.Unlock()
	over()
	f.mu.Lock()
	f.owed--
	f.silentSince = time.Now()
	if f.owed == 0 {
		f.silentSince = time.Time{}
	}
	f.mu.Unlock()
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

// silence returns for how long the node has not answered a command.
func (f *inFlight) silence() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silentSince.IsZero() {
		return 0
	}
	return time.Since(f.silentSince)
}

// silence returns for how long the node owes an answer to a command that flight counts, or to a vote.
func (n *Node) silence(flight *inFlight) time.Duration {
	silence := flight.silence()
	if votes := n.votes.Load(); votes != flight {
		silence = max(silence, votes.silence())
	}
	return silence
}

// sendRelease connects and runs call, which sends one release, within the bounds of what is in flight.
func (n *Node) sendRelease(ctx context.Context, call func() (driver.Reply, error)) (driver.Reply, error) {
	if err := n.Connect(ctx); err != nil {
		return driver.Reply{}, err
	}
	f := n.inFlight
	if err := f.take(ctx, f.releases); err != nil {
		return driver.Reply{}, err
	}
	reply, err := call()
	return reply, n.over(ctx, f, f.releases, err)
}

// over frees the slot of a command that was answered or ended with err, and returns the command's
// error. Where the caller stopped waiting, the command goes on and keeps its slot until it is over. After
// any other error than a reply the next command inspects the server anew.
func (n *Node) over(ctx context.Context, flight *inFlight, slots chan struct{}, err error) error {
	switch {
	case err == nil || isReply(err) || errors.Is(err, driver.ErrNotSent) && ctx.Err() != nil:
	case ctx.Err() != nil:
		n.abandon(flight, slots)
		return errNoAnswer
	default:
		n.link.broken()
	}
	flight.free(slots)
	return err
}

// abandon has the slot of a command that goes on without its caller freed when the command is over.
func (n *Node) abandon(flight *inFlight, slots chan struct{}) {
	if d, ok := n.conn.(driver.Drainer); ok {
		n.background.Go(func() {
			flight.owe(func() {
				d.Drain(n.options.slotTag)
				flight.free(slots)
			})
		})
		return
	}
	if flight.abandon(slots) {
		n.background.Go(func() {
			flight.probe(func() {
				if _, err := n.conn.Do(context.Background(), "PING"); err == nil {
					n.noteReach(nil)
				}
			})
		})
	}
}
