package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/sim/server"
)

// request is one command under way. It is guarded by world.mu until done is
// closed; then reply and err are fixed.
type request struct {
	args []string
	// step is what it has done, and steps are the commands that it puts together, if there are any:
	// each for itself, or all of them or none.
	step      []string
	steps     [][]string
	allOrNone bool
	done      chan struct{}
	reply     driver.Reply
	err       error
	over      bool // done is closed
	sent      time.Duration
	// vouched is since when operators had been about to vouch for the node when it was sent, -1 where
	// none was: their word may arrive when they have gone.
	vouched time.Duration
	// round is how many calls had returned on its connection.
	round int
	// sub is what a SUBSCRIBE is for; message, if not empty, what it hears.
	sub     *subscription
	message string
	// asking: an ASK of a Cluster's server has sent it.
	asking bool
}

func newRequest(args []string) *request {
	asking := args[0] == "ASKING"
	if asking {
		args = args[1:]
	}
	r := &request{args: args, step: stepOf(args), steps: apart(args), vouched: -1, asking: asking}
	if steps := together(args); steps != nil {
		r.steps, r.allOrNone = steps, true
	}
	return r
}

// acquiring returns the holder ids for which the request runs the acquire step.
func (r *request) acquiring() (ids []string) {
	id := func(step []string) {
		if len(step) > 1 && (step[0] == script.Acquire || step[0] == script.Slot) {
			ids = append(ids, step[1])
		}
	}
	if r.steps == nil {
		id(r.step)
	}
	for _, command := range r.steps {
		id(stepOf(command))
	}
	return slices.Compact(ids)
}

// content is what the request says, but for the ids, which are whose who drew first.
func (r *request) content() []string {
	content := slices.Clone(r.args)
	for i, arg := range content {
		if _, rest, ok := strings.Cut(arg, "."); ok {
			content[i] = rest
		}
	}
	return content
}

func (r *request) finish(reply driver.Reply, err error) {
	if !r.over {
		r.over = true
		r.reply, r.err = reply, err
		close(r.done)
	}
}

// stream is one TCP connection. It is guarded by world.mu.
type stream struct {
	conn   *Conn
	server *server.Server // at the other end
	// waiting are the requests without a reply, in order.
	waiting []*request
	// fresh are requests of this moment, not sent yet.
	fresh       []*request
	there, back *direction
	progress    time.Duration
	watched     bool
	broken      bool
	closed      bool // by the server: something that was sent is lost
	subs        []*subscription
}

func newStream(c *Conn) *stream {
	s := &stream{conn: c, server: c.node.server}
	w := c.machine.world
	s.there = &direction{world: w,
		blocked: func(now time.Duration) bool { return now < c.path.thereUntil },
		deliver: func(r *request) { c.node.receive(s, r) },
	}
	s.back = &direction{world: w,
		blocked: func(now time.Duration) bool { return now < c.path.backUntil || c.machine.paused != nil },
		deliver: s.replied,
	}
	return s
}

// post has r sent at the end of this moment. What several goroutines post in
// one moment is put in an order that does not depend on which of them ran
// first; but what was posted after another call had returned stays behind it.
func (s *stream) post(r *request) {
	s.fresh = append(s.fresh, r)
	if len(s.fresh) == 1 {
		s.conn.machine.world.after(time.Nanosecond, s.send)
	}
}

// send sends what was posted.
func (s *stream) send() {
	c := s.conn
	w := c.machine.world
	slices.SortStableFunc(s.fresh, func(a, b *request) int {
		return cmp.Or(a.round-b.round, slices.Compare(a.content(), b.content()))
	})
	for _, r := range s.fresh {
		if c.rng.Float64() < c.path.network.Cuts {
			// The connection breaks at some moment of this command's way.
			w.after(around(c.rng, 2*c.delay()), func() {
				if c.stream == s {
					w.History.Add(c.machine.Name, "connection to %s breaks", c.node.Name)
					c.sever(errReset)
				}
			})
		}
		s.waiting = append(s.waiting, r)
		s.there.push(r, c.delay())
	}
	s.fresh = nil
	if len(s.waiting) > 0 && !s.watched {
		s.progress = w.Now()
		s.watch(replyTimeout)
	}
}

// watch gives the connection up when replies are due and none has come for too
// long.
func (s *stream) watch(d time.Duration) {
	s.watched = true
	w := s.conn.machine.world
	w.after(d, func() {
		s.watched = false
		if s.broken || len(s.waiting) == 0 {
			return
		}
		if left := s.progress + replyTimeout - w.Now(); left > 0 {
			s.watch(left)
			return
		}
		if s.conn.machine.paused != nil {
			s.watch(time.Second)
			return
		}
		s.conn.sever(errSilent)
	})
}

// snag holds up what follows a step, if it is so drawn: the way to the node, or
// the whole process, before it hears the answer.
func (s *stream) snag() {
	c := s.conn
	like := &c.path.network
	if like.Snags == 0 || c.rng.Float64() >= like.Snags {
		return
	}
	d := between(c.rng, 0, like.Snag)
	if c.rng.IntN(8) == 0 {
		w := c.machine.world
		c.path.disturb(w.Now() + d)
		w.schedule.after(0, func() { c.machine.Pause(d, false) })
		return
	}
	s.holdUp(d)
}

// holdUp has nothing arrive at the node for d.
func (s *stream) holdUp(d time.Duration) {
	w, way := s.conn.machine.world, s.conn.path
	way.disturb(w.Now() + d)
	way.thereUntil = max(way.thereUntil, w.Now()+d)
	w.after(d, func() { s.there.release(0) })
}

// strand has the answer to a release lost, if it is so drawn, and the ways to the other
// nodes held up: a waiter may come there before the release does.
func (s *stream) strand() {
	c := s.conn
	like := &c.path.network
	if like.Snags == 0 || s.broken || c.rng.Float64() >= like.Snags {
		return
	}
	m, w := c.machine, c.machine.world
	for _, other := range m.conns {
		if way := other.stream; other != c && way != nil {
			way.holdUp(between(c.rng, 0, like.Snag))
		}
	}
	w.History.Add(m.Name, "the answer of %s is lost", c.node.Name)
	c.sever(errReset)
}

// turn reports that a place in the wait queue is the first, and the lock free.
func turn(reply driver.Reply) bool {
	a := reply.Array
	return len(a) > 2 && a[0].Int == 0 && a[2].Text == ""
}

// silence holds the way to the node up when it has told a waiter that it is its turn, if it is so drawn.
func (s *stream) silence() {
	c := s.conn
	like := &c.path.network
	if like.Silences == 0 || c.rng.Float64() >= like.Silences {
		return
	}
	d := between(c.rng, 0, like.Silence)
	c.machine.world.History.Add(c.machine.Name, "way to %s is held up for %v", c.node.Name, d)
	s.holdUp(d)
}

// answer sends the reply that r was given back.
func (s *stream) answer(r *request) {
	if !s.broken {
		s.back.push(r, s.conn.delay())
	}
}

// replied is the arrival of a reply. Replies come in order.
func (s *stream) replied(r *request) {
	if s.broken {
		return
	}
	if r.message != "" {
		select {
		case r.sub.messages <- r.message:
		default: // as if it were lost
		}
		return
	}
	s.waiting = s.waiting[1:]
	s.progress = s.conn.machine.world.Now()
	s.conn.machine.repeatGrant(s.conn, r)
	if len(r.acquiring()) > 0 && r.err == nil && (granted(r.reply) || strings.Contains(r.reply.Text, "1")) { // a batch's has a 1 for each
		s.conn.machine.world.afterGrant.Store(afterGrant)
	}
	r.finish(r.reply, r.err)
}

// end ends the stream at the machine's side.
func (s *stream) end(err error) {
	s.broken = true
	for _, sub := range s.subs {
		sub.end()
	}
	for _, r := range slices.Concat(s.waiting, s.fresh) {
		r.finish(driver.Reply{}, err)
	}
	s.waiting, s.fresh = nil, nil
	rng := s.conn.rng
	kept := rng.IntN(s.there.len() + 1)
	late := time.Duration(0)
	if rng.IntN(3) == 0 {
		late = around(rng, 500*time.Millisecond)
	}
	s.there.cut(kept, late)
}

// direction is one of a stream: first in, first out. It is guarded by
// world.mu.
type direction struct {
	world   *World
	queue   []parcel
	last    time.Duration // when the last one arrives
	blocked func(now time.Duration) bool
	deliver func(*request)
}

type parcel struct {
	at time.Duration
	r  *request
}

func (l *direction) len() int { return len(l.queue) }

// push sends r, to arrive after delay and after all before it.
func (l *direction) push(r *request, delay time.Duration) {
	now := l.world.Now()
	l.last = max(now+delay, l.last+time.Nanosecond)
	l.queue = append(l.queue, parcel{l.last, r})
	l.wake(l.last - now)
}

func (l *direction) wake(d time.Duration) {
	l.world.after(d, l.pump)
}

// pump delivers what is due.
func (l *direction) pump() {
	now := l.world.Now()
	for len(l.queue) > 0 && l.queue[0].at <= now && !l.blocked(now) {
		r := l.queue[0].r
		l.queue = l.queue[1:]
		l.deliver(r)
	}
}

// release goes on after a block, with what waited for d more.
func (l *direction) release(d time.Duration) {
	if len(l.queue) > 0 {
		l.wake(d)
	}
}

// hasten has what is on its way arrive soon.
func (l *direction) hasten() {
	now := l.world.Now()
	for i := range l.queue {
		l.queue[i].at = min(l.queue[i].at, now+swift+time.Duration(i))
	}
	if n := len(l.queue); n > 0 {
		l.last = l.queue[n-1].at
		l.wake(0)
		l.wake(l.last - now)
	}
}

// cut keeps the first parcels and has them arrive later.
func (l *direction) cut(kept int, late time.Duration) {
	l.queue = l.queue[:kept]
	if late == 0 || kept == 0 {
		return
	}
	now := l.world.Now()
	for i := range l.queue {
		l.queue[i].at = max(l.queue[i].at, now+late+time.Duration(i))
		l.wake(l.queue[i].at - now)
	}
}
