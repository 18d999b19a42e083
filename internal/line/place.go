package line

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/script"
)

// How often the arbiter is asked. A waiter who is called needs none of it.
const (
	// beat keeps the place: three may be lost before it lapses.
	beat = script.Patience * 3 / 10
	// poll is for the first in line where the server cannot tell of a release.
	poll = 30 * time.Millisecond
	// late is how much after a record's expiry the first in line looks.
	late = time.Millisecond
)

// ErrNone says that no node keeps the line at present.
var ErrNone = errors.New("no node keeps the line")

// Place is this process's place in the line for one record. One goroutine uses
// it at a time.
type Place struct {
	line   *Line
	waiter string
	claim  ballot.Claim
	order  []int
	// standing is the last answer; it is Held where a node keeps the place. begun is when the
	// present turn began, zero when it is not this process's turn.
	standing ballot.Standing
	begun    time.Time
	// attempt is the holder id of the last attempt.
	attempt string
	// watch asks for news of the record, whose holder calls nobody.
	watch bool
	// called gets what concerns this place; the stronger signal stays.
	called chan call
}

type call uint8

const (
	look call = iota // something may have changed
	turn             // the record is kept for us
)

// signal is called with line.mu held.
func (p *Place) signal(c call) {
	select {
	case p.called <- c:
		return
	default:
	}
	// The reader may take it meanwhile, and then finds this one.
	select {
	case old := <-p.called:
		c = max(c, old)
	default:
	}
	p.called <- c
}

// Await returns nil when it is time for an attempt: the process was called, or
// is the first in line and the record is free. It returns ErrNone when no node
// keeps the line, and ctx's cause when ctx is done. It rests first, unless it is
// called. told is called with each of the arbiter's answers.
func (p *Place) Await(ctx context.Context, rest time.Duration, told func(ballot.Standing)) error {
	for {
		if rest > 0 {
			called, err := p.wait(ctx, rest)
			if called || err != nil {
				return err
			}
		}
		select {
		case <-p.called: // the answer tells as much
		default:
		}
		if err := p.stand(ctx); err != nil {
			return err
		}
		s := p.standing
		told(s)
		first := s.Ahead == 0
		if first && s.Free() {
			p.begin()
			return nil
		}
		if s.Holder != p.attempt {
			p.begun = time.Time{}
		}
		watched := p.watch
		p.watch = first && !s.Free() && p.line.options.Foreign(s.Holder)
		if rest = p.pause(); p.watch && !watched {
			rest = 0
		}
	}
}

// wait returns after d, or before when something may have changed. With called the
// record is kept for this process.
func (p *Place) wait(ctx context.Context, d time.Duration) (called bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case c := <-p.called:
		if c == turn {
			p.begin()
		}
		return c == turn, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// pause is how long the waiter stays without asking.
func (p *Place) pause() time.Duration {
	s, d := p.standing, beat-beat/20+p.line.options.Draw(beat/10)
	if s.Free() || s.Ahead == 0 && s.Left >= 0 {
		d = min(d, s.Left+late)
	}
	if !s.Hears || p.watch && !s.Watched {
		d = min(d, poll)
	}
	return d
}

func (p *Place) begin() {
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
}

// stand asks the nodes in order until one keeps the line.
func (p *Place) stand(ctx context.Context) error {
	for _, i := range p.order {
		step, cancel := context.WithTimeout(ctx, p.line.options.Timeout)
		s := p.line.keepers[i].Stand(step, p.claim, p.watch)
		cancel()
		if ctx.Err() != nil {
			if there := p.stands() && p.claim.Place.Voter == i; !there && (s.Verdict == ballot.Held || s.Verdict == ballot.Unknown) {
				p.line.leave(i, p.claim.Record, s.Place.Waiter) // it may have been given a place
			}
			return context.Cause(ctx)
		}
		if s.Verdict == ballot.Held {
			if s.Place.Voter = i; p.stands() && (p.claim.Place.Voter != i || p.claim.Place.Waiter != s.Place.Waiter) {
				p.abandon()
			}
			p.standing, p.claim.Place = s, s.Place
			return nil
		}
	}
	return ErrNone
}

// In gives an attempt's claim its place. A turn lasts no longer than the arbiter
// keeps the record for one who was called: an attempt that fails later loses the
// place, so that one who cannot get its quorum holds nobody up.
func (p *Place) In(claim ballot.Claim) ballot.Claim {
	if !p.begun.IsZero() && time.Since(p.begun) > script.Grace {
		p.claim.Place.Ticket = 0
		p.begun = time.Time{}
	}
	p.attempt = claim.ID
	claim.Place = p.claim.Place
	return claim
}

// Taken ends the place of a process that has the lock. Where the arbiter's vote
// was given or is to come, the place ends with it.
func (p *Place) Taken(arbiter ballot.Answer) {
	p.forget()
	if p.stands() && arbiter.Verdict != ballot.Granted && (arbiter.Verdict != ballot.Unknown || arbiter.Err != nil) {
		p.abandon()
	}
}

// Leave ends the place, in the background: whoever is next in line is called if
// it was this process's turn.
func (p *Place) Leave() {
	p.forget()
	if p.stands() {
		p.abandon()
	}
}

// Arbiter is the index of the node that keeps the line.
func (p *Place) Arbiter() int { return p.claim.Place.Voter }

func (p *Place) stands() bool { return p.standing.Verdict == ballot.Held }

func (p *Place) forget() {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	delete(p.line.places, p.claim.Record)
}

func (p *Place) abandon() {
	p.line.leave(p.claim.Place.Voter, p.claim.Record, p.claim.Place.Waiter)
}
