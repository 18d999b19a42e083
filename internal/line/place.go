package line

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	// delay is how long a message may be behind an answer that was sent after it.
	delay = 5 * time.Millisecond
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
	// attempt is the holder id of the last attempt. from is the holder who left its
	// records to this process, if any did: it holds nothing any more, so that it does
	// no harm if somebody has taken them over. given is the bid that the arbiter has granted
	// the record to, if it has.
	attempt, from, given string
	// bid went with the last stand that had one, and before with the one before, until it
	// is known that nothing was granted to it. unanswered: the arbiter of the order, which
	// bids are for, has not answered the last stand.
	bid, before Bid
	unanswered  bool
	// own is the ID of bid if it was made in the present Await: another caller's is not
	// what this one asked for.
	own string
	// granted is what the own bid was granted under; its Token is 0 when it was not.
	granted ballot.Call
	// watch asks for news of the record, whose holder calls nobody.
	watch bool
	// called gets what concerns this place; the stronger signal stays.
	called chan news
}

// news: something may have changed.
type news struct {
	// turn: the record is kept for us, or granted to our bid, as call of node voter says.
	turn  bool
	voter int
	call  ballot.Call
}

// signal is called with line.mu held.
func (p *Place) signal(n news) {
	select {
	case p.called <- n:
		return
	default:
	}
	// The reader may take it meanwhile, and then finds this one.
	select {
	case old := <-p.called:
		if old.turn && !n.turn {
			n = old
		}
	default:
	}
	p.called <- n
}

// Await returns nil when it is time for an attempt: the process was called, or
// is the first in line and the record is free, or the record was granted to its bid.
// It returns ErrNone when no node keeps the line, and ctx's cause when ctx is done. It
// rests first, unless it is called. bid makes a bid whenever the arbiter is asked; one
// without an ID is none. told is called with each of the arbiter's answers.
func (p *Place) Await(ctx context.Context, rest time.Duration, bid func() ballot.Claim, told func(ballot.Standing)) error {
	p.own, p.granted = "", ballot.Call{}
	for {
		if rest > 0 {
			called, err := p.wait(ctx, rest)
			if called || err != nil {
				return err
			}
		}
		select {
		case n := <-p.called:
			if n.call.Bid != "" { // else the answer tells as much
				p.take(n)
				return nil
			}
		default:
		}
		if err := p.stand(ctx, bid()); err != nil {
			return err
		}
		s := p.standing
		if p.isBid(s.Holder) {
			return p.hear(ctx, s.Holder)
		}
		p.before = Bid{}
		told(s)
		first := s.Ahead == 0
		if first && s.Free() {
			p.begin(s.From, "")
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
	case n := <-p.called:
		p.take(n)
		return n.turn, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// take takes a message in.
func (p *Place) take(n news) {
	if !n.turn {
		return
	}
	if call := n.call; call.Bid != "" && n.voter != p.claim.Place.Voter {
		// The place is on another node now.
		n.call.Bid, call.From = "", ""
		p.line.leave(n.voter, call)
	}
	p.begin(n.call.From, n.call.Bid)
	if n.call.Bid != "" && n.call.Bid == p.own {
		p.granted = n.call
	}
}

// hear waits for the message that the record was granted to bid, which the last answer says:
// it says who has left its records on other nodes. The place that this answer is of is ended
// by an attempt.
func (p *Place) hear(ctx context.Context, bid string) error {
	from := ""
	if p.given == bid {
		from = p.from
	}
	p.begin(from, bid)
	if from != "" || len(p.order) == 1 {
		return nil
	}
	_, err := p.wait(ctx, delay)
	p.granted = ballot.Call{}
	return err
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

func (p *Place) begin(from, given string) {
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
	p.from, p.given = from, given
}

// stand asks the nodes in order until one keeps the line. A bid is for the first of them
// alone, or two might grant it. While it is not known what became of one no other is made, so
// that two are outstanding at most.
func (p *Place) stand(ctx context.Context, bid ballot.Claim) error {
	claim := p.claim
	if bid.ID != "" && !p.unanswered {
		claim.ID, claim.TTL = bid.ID, bid.TTL
		p.bid, p.before, p.own = Bid{bid, p.line.options.Now()}, p.bid, bid.ID
	}
	p.unanswered = true
	for k, i := range p.order {
		if k > 0 {
			claim.ID = ""
		}
		step, cancel := context.WithTimeout(ctx, p.line.options.Timeout)
		claim.Place = p.claim.Place
		s := p.line.keepers[i].Stand(step, claim, p.watch)
		cancel()
		if ctx.Err() != nil {
			if there := p.stands() && p.claim.Place.Voter == i; !there && (s.Verdict == ballot.Held || s.Verdict == ballot.Unknown) {
				p.abandon(i, s.Place.Waiter, s.From) // it may have been given a place
			}
			return context.Cause(ctx)
		}
		if s.Verdict == ballot.Held {
			if s.Place.Voter = i; p.stands() && (p.claim.Place.Voter != i || p.claim.Place.Waiter != s.Place.Waiter) {
				p.line.leave(p.claim.Place.Voter, ballot.Call{Record: p.claim.Record, Waiter: p.claim.Place.Waiter, From: p.from})
			}
			p.standing, p.claim.Place, p.unanswered = s, s.Place, k > 0
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
	claim.Place, claim.From = p.claim.Place, p.from
	claim.Place.Bid = p.given
	return claim
}

// Taken ends the place of a process that has the lock. Where the arbiter's vote
// was given or is to come, the place ends with it.
func (p *Place) Taken(arbiter ballot.Answer) {
	p.forget(p.granted)
	p.from = ""
	if p.stands() && arbiter.Verdict != ballot.Granted && (arbiter.Verdict != ballot.Unknown || arbiter.Err != nil) {
		p.abandon(p.claim.Place.Voter, p.claim.Place.Waiter, "")
	}
}

// Leave ends the place, in the background: whoever is next in line is called if
// it was this process's turn.
func (p *Place) Leave() {
	p.forget(ballot.Call{})
	select {
	case n := <-p.called:
		p.from, p.given = cmp.Or(n.call.From, p.from), cmp.Or(n.call.Bid, p.given)
	default:
	}
	if p.stands() {
		p.abandon(p.claim.Place.Voter, p.claim.Place.Waiter, p.from)
	}
}

// Arbiter is the index of the node that keeps the line.
func (p *Place) Arbiter() int { return p.claim.Place.Voter }

func (p *Place) stands() bool { return p.standing.Verdict == ballot.Held }

// forget ends the place of the waiter, who may have accepted a grant.
func (p *Place) forget(accepted ballot.Call) {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places[p.claim.Record] == p { // else the process has taken another since
		delete(l.places, p.claim.Record)
	}
	if accepted.Token > 0 {
		l.accepted[l.grants%len(l.accepted)] = accepted.Bid
		l.grants++
	}
}

// abandon gives up the place that waiter has on a node, what from has left to it, and
// what may have been granted to its bids.
func (p *Place) abandon(voter int, waiter, from string) {
	bids := []string{p.bid.ID, p.before.ID, p.given}
	slices.Sort(bids)
	for _, bid := range slices.Compact(bids) {
		if bid != "" {
			p.line.leave(p.order[0], ballot.Call{Record: p.claim.Record, Waiter: waiter, Bid: bid})
		}
	}
	if from != "" || p.bid.ID == "" || voter != p.order[0] {
		p.line.leave(voter, ballot.Call{Record: p.claim.Record, Waiter: waiter, From: from})
	}
}
