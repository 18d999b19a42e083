package redistest

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"
)

// upstream is one connection of a link to the server, with the commands that
// await their replies on it.
type upstream struct {
	nc   net.Conn
	done chan struct{} // closed when nothing more comes and what was lost has been dealt with

	mu         sync.Mutex // guards the fields below
	pending    []awaited  // in the order sent
	broken     bool       // no command may be added
	subscribed bool       // messages may come between replies (protocol 2)
}

// awaited is a command whose reply has not come.
type awaited struct {
	replies   int  // that are still to come
	begun     bool // some have come
	subscribe bool
	swallow   bool // the proxy's own: the client must not see the reply
	action    Action
}

// connected returns the link's connection to the server and makes one if there
// is none, for as long as that takes and the client stays if clients are kept
// open. It returns nil when the link has ended.
func (l *link) connected() *upstream {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		l.mu.Lock()
		up := l.up
		l.mu.Unlock()
		if up != nil && up.alive() {
			return up
		}
		if up != nil && !l.abandon(up) {
			return nil
		}
		up, err := l.dial()
		if err == nil {
			return up
		}
		if l.ctx.Err() != nil || !l.p.currentRules().keepOpen || l.clientEnded.Load() {
			l.sever(true)
			return nil
		}
		waitFor(l.ctx, nil, wait)
	}
}

// abandon waits until a broken connection has been dealt with. It reports
// whether another may take its place; if not, it waits for the link's end, which
// comes when the client has been sent what there was.
func (l *link) abandon(up *upstream) bool {
	select {
	case <-up.done:
	case <-l.ctx.Done():
		return false
	}
	l.mu.Lock()
	replaced := l.up != up
	l.mu.Unlock()
	if !replaced {
		<-l.ctx.Done()
	}
	return replaced
}

// dial connects to the server and, on any but the first connection, repeats the
// client's handshake.
func (l *link) dial() (*upstream, error) {
	l.p.mu.Lock()
	target := l.p.target
	l.p.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, doLimit)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, network(target), target)
	if err != nil {
		return nil, err
	}
	up := &upstream{nc: nc, done: make(chan struct{})}
	l.mu.Lock()
	if l.severed {
		l.mu.Unlock()
		nc.Close()
		return nil, net.ErrClosed
	}
	l.up = up
	l.mu.Unlock()
	l.p.count(func(s *Stats) { s.Connected++ })
	l.wg.Go(func() { up.read(l) })
	for _, c := range l.handshake {
		if up.add(awaited{replies: 1, swallow: true}) {
			up.write(encode(c.Args))
		}
	}
	return up, nil
}

func (u *upstream) alive() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.broken
}

// add notes that a reply is due. It reports false on a broken connection.
func (u *upstream) add(a awaited) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.broken {
		return false
	}
	u.pending = append(u.pending, a)
	return true
}

// expect notes that a command's reply is due, before it is sent. It reports
// false on a broken connection.
func (u *upstream) expect(args []string, action Action) bool {
	a := awaited{replies: 1, action: action}
	switch strings.ToUpper(args[0]) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		// One confirmation for each channel, as pushes in protocol 3.
		a.subscribe, a.replies = true, max(1, len(args)-1)
		u.mu.Lock()
		u.subscribed = true
		u.mu.Unlock()
	}
	return u.add(a)
}

// write reports whether all was written. If not, the connection is closed, by
// which its reader learns of it.
func (u *upstream) write(b []byte) bool {
	if _, err := u.nc.Write(b); err != nil {
		u.nc.Close()
		return false
	}
	return true
}

// match finds the command that a reply belongs to. first tells whether it is
// the command's first reply.
func (u *upstream) match(frame []byte, resp3 bool) (a awaited, first, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) == 0 {
		return awaited{}, false, false
	}
	head := &u.pending[0]
	switch {
	case frame[0] == '>' && (!head.subscribe || !strings.HasSuffix(firstWord(frame), "subscribe")):
		return awaited{}, false, false
	case frame[0] == '*' && !resp3 && u.subscribed && strings.HasSuffix(firstWord(frame), "message"):
		return awaited{}, false, false
	}
	a, first = *head, !head.begun
	head.replies--
	head.begun = true
	if head.replies == 0 || frame[0] == '-' {
		u.pending = u.pending[1:]
	}
	return a, first, true
}

// read puts what the server sends into the link's replies stream until the
// connection breaks.
func (u *upstream) read(l *link) {
	defer close(u.done)
	var split replySplitter
	buf := make([]byte, readSize)
	for {
		n, err := u.nc.Read(buf)
		if n > 0 && !u.readReplies(l, &split, buf[:n]) {
			err = net.ErrClosed
		}
		if err != nil {
			u.nc.Close()
			u.finish(l, split.rest())
			return
		}
	}
}

// readReplies reports false when the link has ended.
func (u *upstream) readReplies(l *link, split *replySplitter, b []byte) bool {
	split.feed(b)
	for !l.raw.Load() {
		data, err := split.next()
		if err != nil {
			l.raw.Store(true)
			break
		}
		if data == nil {
			return true
		}
		if !u.readReply(l, data) {
			return false
		}
	}
	if rest := split.rest(); len(rest) > 0 {
		return l.replies.put(l.ctx, item{data: rest})
	}
	return true
}

func (u *upstream) readReply(l *link, data []byte) bool {
	it := item{data: data}
	a, first, ok := u.match(data, l.resp3.Load())
	if ok && a.swallow {
		return true
	}
	if ok && first {
		switch a.action {
		case CutAfter:
			it.kind = severing
		case DropReply:
			it.kind = deafening
		}
	}
	return l.replies.put(l.ctx, it)
}

// finish deals with what the broken connection leaves open, before another can
// take its place: the answers it makes up stand before those of a new one.
func (u *upstream) finish(l *link, rest []byte) {
	u.mu.Lock()
	u.broken = true
	pending := u.pending
	u.pending = nil
	u.mu.Unlock()
	l.p.count(func(s *Stats) { s.Connected-- })

	var lost int
	for _, a := range pending {
		if !a.swallow {
			lost++
		}
	}
	r := l.p.currentRules()
	l.mu.Lock()
	keep := r.keepOpen && !l.raw.Load() && !l.requestsEnded && (lost == 0 || r.answerLost != "")
	l.mu.Unlock()
	if !keep {
		if len(rest) > 0 {
			l.replies.put(l.ctx, item{data: rest})
		}
		l.replies.put(l.ctx, item{kind: ending})
		return
	}
	for range lost {
		l.replies.put(l.ctx, item{data: []byte("-" + r.answerLost + "\r\n")})
	}
	l.mu.Lock()
	l.up = nil
	left := l.requestsEnded // since we looked: nobody will ask for another connection
	l.mu.Unlock()
	if left {
		l.replies.put(l.ctx, item{kind: ending})
	}
}
