package redistest

import (
	"context"
	"fmt"
	"time"
)

// Direction says which way a fault lies.
type Direction uint8

// The directions, as seen by the client.
const (
	Requests Direction = 1 << iota // from the client to the server
	Replies                        // from the server to the client
	Both     = Requests | Replies
)

// rules are the faults in force.
type rules struct {
	ways        [2]way // of Requests and of Replies
	reorderSeed uint64
	reorderMax  time.Duration
	keepOpen    bool
	answerLost  string
}

// way are the faults of one direction.
type way struct {
	delay, jitter time.Duration
	hole, hold    bool
}

// index is the place of a single direction.
func (d Direction) index() int { return int(d - Requests) }

// verdict is what becomes of an item.
type verdict uint8

const (
	deliver verdict = iota
	discard
	over // the connection has ended
)

// Delay makes every byte of the direction wait for d and, in addition, up to
// jitter, chosen at random for each command or reply. The order within a
// connection stays. It counts from when the proxy read the byte, and holds for
// bytes that are on their way already; Delay(dir, 0, 0) lets them go at once.
func (p *Proxy) Delay(dir Direction, d, jitter time.Duration) {
	p.change(dir, func(w *way) { w.delay, w.jitter = d, jitter })
}

// BlackHole makes everything of the direction vanish, while connections stay
// open and new ones are accepted; the end of a connection vanishes too. It acts
// where bytes would be delivered: a delayed byte is lost only if the fault is
// still on when its time comes, and one whose delivery has begun passes.
//
// What is lost stays lost: when the fault is lifted, every connection that lost
// something is cut, as no stream goes on with a hole in it. See [Proxy.HoldBack]
// for a fault that loses nothing.
func (p *Proxy) BlackHole(dir Direction, on bool) {
	p.change(dir, func(w *way) { w.hole = on })
	if on {
		return
	}
	for _, l := range p.open() {
		if p.lost(l, dir) {
			l.sever(true)
		}
	}
}

// DropReplies makes all replies vanish: commands are executed and nobody learns
// of it. It is BlackHole(Replies, on): lifting it cuts the connections that
// missed something.
func (p *Proxy) DropReplies(on bool) { p.BlackHole(Replies, on) }

// HoldBack makes everything of the direction wait, the end of a connection too,
// until it is lifted; then it is delivered in order. A direction of a
// connection holds some 8 MiB, beyond which its sender is stopped. Where there
// is a black hole too, that wins.
func (p *Proxy) HoldBack(dir Direction, on bool) {
	p.change(dir, func(w *way) { w.hold = on })
}

// Reorder makes each command wait for a random time below max in addition, so
// that commands on different connections overtake each other. Within one
// connection they stay in order. Which time is decided by the seed, the number
// of the connection and that of the command on it. A max of 0 lifts it.
func (p *Proxy) Reorder(seed uint64, max time.Duration) {
	p.update(func() { p.rules.reorderSeed, p.rules.reorderMax = seed, max })
}

// Cut closes all present connections by a reset, on both sides, and throws away
// what was on its way. New connections are accepted as before.
func (p *Proxy) Cut() {
	for _, l := range p.open() {
		l.sever(true)
	}
}

// Hangup closes all present connections in the ordinary way, as a proxy does
// that is shut down, and throws away what was on its way.
func (p *Proxy) Hangup() {
	for _, l := range p.open() {
		l.sever(false)
	}
}

// Refuse closes the listener, so that connecting is refused, and opens it again
// on the same port, for which it waits for two seconds at most. Present connections go on: see
// [Proxy.Cut]. The error is one of listening again.
func (p *Proxy) Refuse(on bool) error {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if on {
		p.unlisten()
		return nil
	}
	return p.listen()
}

// Retarget puts another server, a host:port or the path of a Unix socket,
// behind the proxy's address. Connections that are established stay with the
// old one: see [Proxy.Cut].
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// KeepClientOpen hides from clients that the server's side of a connection
// broke, as pooling proxies do: the client's connection stays and the proxy
// connects anew, for as long as it takes. Commands wait meanwhile. The first
// commands of a connection, as long as they are HELLO, AUTH, SELECT or CLIENT,
// are repeated on the new one, their replies swallowed. Subscriptions, WATCH,
// MULTI and tracked keys are lost without notice, and a server that is still
// loading its data answers LOADING, as to anybody.
//
// A client whose commands were sent but not answered is cut after all, unless
// [Proxy.AnswerLost] has an answer for it, and so is one whose bytes are not
// plain Redis protocol, but for one that no server has been there for yet: that
// waits for the first. What a client sent that ends while no server is there is
// thrown away. A command that is sent before the proxy has noticed the
// break is lost like that: wait for Stats.Connected to fall where it matters.
func (p *Proxy) KeepClientOpen(on bool) { p.update(func() { p.rules.keepOpen = on }) }

// AnswerLost sets the error that [Proxy.KeepClientOpen] answers to a command
// whose reply was lost with the server's connection, say "ERR upstream failure".
// Such a command may have been executed. Empty means no answer, but a cut.
func (p *Proxy) AnswerLost(text string) { p.update(func() { p.rules.answerLost = text }) }

// change applies set to each direction of dir.
func (p *Proxy) change(dir Direction, set func(*way)) {
	if dir == 0 || dir&^Both != 0 {
		panic(fmt.Sprintf("redistest: direction %d is none of Requests, Replies, Both", dir))
	}
	p.update(func() {
		for _, d := range []Direction{Requests, Replies} {
			if dir&d != 0 {
				set(&p.rules.ways[d.index()])
			}
		}
	})
}

// update changes the rules and has every waiting item look at them again.
func (p *Proxy) update(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	close(p.changed)
	p.changed = make(chan struct{})
}

// gate blocks until an item of the link may be delivered or must be discarded.
func (p *Proxy) gate(l *link, dir Direction, it item, luck luck) verdict {
	for {
		p.mu.Lock()
		w, changed := p.rules.ways[dir.index()], p.changed
		wait := time.Until(it.at.Add(w.delay + luck.of(w.jitter) + luck.extra))
		if wait <= 0 && w.hole {
			// In one step with looking at the rules: whoever lifts the black
			// hole after this finds the link among those to be cut.
			l.lost |= dir
		}
		// Until it has been cut, nothing passes it after the hole that it has.
		lost := l.lost&dir != 0
		p.mu.Unlock()
		switch {
		case l.ctx.Err() != nil:
			return over
		case wait > 0:
			waitFor(l.ctx, changed, wait)
		case lost:
			return discard
		case w.hold:
			waitFor(l.ctx, changed, 0)
		default:
			return deliver
		}
	}
}

// waitFor blocks until ctx ends, something changed or, if d is above zero, that
// long.
func waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	var expired <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-expired:
	}
}

// lost reports whether the link has lost bytes of one of the directions.
func (p *Proxy) lost(l *link, dir Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.lost&dir != 0
}
