package redistest

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// readSize is how much is read from a connection at once.
const readSize = 32 << 10

// link is one client's connection and the server's behind it. Three goroutines
// belong to it, and one more for each connection to the server:
//
//	client → readClient → requests → deliverRequests → server
//	client ← deliverReplies ← replies ← upstream.read ← server
type link struct {
	p        *Proxy
	client   net.Conn
	conn     int // from 1, in order of acceptance
	requests *stream
	replies  *stream

	ctx context.Context // ends when the link is severed
	end context.CancelFunc

	wg sync.WaitGroup // the goroutines

	raw   atomic.Bool // the bytes are not commands and replies, or no longer
	resp3 atomic.Bool // HELLO 3 was sent

	clientEnded atomic.Bool // nothing more comes from the client
	lost        Direction   // bytes of it were discarded; guarded by p.mu

	mu            sync.Mutex // guards the fields below
	up            *upstream  // the latest; nil until one is needed
	severed       bool
	requestsEnded bool // the client's end has been delivered or discarded
	repliesEnded  bool // the server's end has been discarded

	// Of deliverRequests alone:
	commands  int
	handshake []Command // the commands to repeat on a new connection to the server
	greeted   bool      // handshake is complete
}

func newLink(p *Proxy, client net.Conn, conn int) *link {
	l := &link{p: p, client: client, conn: conn, requests: newStream(), replies: newStream()}
	l.ctx, l.end = context.WithCancel(p.ctx)
	return l
}

func (l *link) run() {
	l.wg.Go(l.readClient)
	l.wg.Go(l.deliverRequests)
	l.wg.Go(l.deliverReplies)
	l.wg.Wait()
	l.sever(false)
}

// sever ends the link: both connections are closed, by a reset or not. It does
// not wait for the goroutines, as it may be called by one of them.
func (l *link) sever(hard bool) {
	l.mu.Lock()
	if l.severed {
		l.mu.Unlock()
		return
	}
	l.severed = true
	up := l.up
	l.mu.Unlock()
	l.end()
	drop := func(nc net.Conn) { nc.Close() }
	if hard {
		drop = reset
	}
	drop(l.client)
	if up != nil {
		drop(up.nc)
	}
}

// readClient puts what the client sends into the requests stream.
func (l *link) readClient() {
	var split commandSplitter
	buf := make([]byte, readSize)
	for {
		n, err := l.client.Read(buf)
		if n > 0 && !l.readRequests(&split, buf[:n]) {
			return
		}
		if err != nil {
			l.clientEnded.Store(true)
			if rest := split.rest(); len(rest) > 0 {
				l.requests.put(l.ctx, item{data: rest})
			}
			l.requests.put(l.ctx, item{kind: ending})
			return
		}
	}
}

// readRequests reports false when the link has ended.
func (l *link) readRequests(split *commandSplitter, b []byte) bool {
	split.feed(b)
	for !l.raw.Load() {
		data, args, err := split.next()
		if err != nil {
			l.raw.Store(true)
			break
		}
		if data == nil {
			return true
		}
		if len(args) > 0 {
			l.p.count(func(s *Stats) { s.Seen[strings.ToUpper(args[0])]++ })
		}
		if !l.requests.put(l.ctx, item{data: data, args: args}) {
			return false
		}
	}
	if rest := split.rest(); len(rest) > 0 {
		return l.requests.put(l.ctx, item{data: rest})
	}
	return true
}

// deliverRequests takes commands from the stream to the server.
func (l *link) deliverRequests() {
	w := l.p.currentRules().ways[Requests.index()]
	if !w.hole && !w.hold {
		// A server counts a connection, and may refuse it, before the first
		// byte. In front of a partition there is none to be connected to.
		if l.connected() == nil {
			return
		}
	}
	dice := newDice(l.p.seed, l.conn, Requests)
	for {
		it, ok := l.requests.take(l.ctx)
		if !ok || !l.deliverRequest(it, dice.roll(l.p.currentRules())) {
			return
		}
	}
}

// deliverRequest reports false when nothing more can be delivered.
func (l *link) deliverRequest(it item, luck luck) bool {
	if len(it.args) > 0 {
		l.commands++
	}
	verdict := l.p.gate(l, Requests, it, luck)
	var action Action
	if verdict == deliver && len(it.args) > 0 {
		action = l.ask(it.args)
		if action == CutBefore {
			l.sever(true)
			return false
		}
		verdict = l.p.gate(l, Requests, it, luck) // the hook may have made new rules
	}
	switch {
	case verdict == over:
		return false
	case it.kind == ending:
		l.requestsDone(verdict)
		return false
	case verdict == discard:
		l.p.count(func(s *Stats) { s.DiscardedBytes += int64(len(it.data)) })
		return true
	}
	return l.forward(l.p.translate(it), action)
}

func (l *link) ask(args []string) Action {
	l.p.mu.Lock()
	hook := l.p.hook
	l.p.mu.Unlock()
	if hook == nil {
		return Pass
	}
	return hook(Command{Conn: l.conn, N: l.commands, Args: args})
}

// forward writes one command, or raw bytes, to the server. It reports false
// when the link has ended.
func (l *link) forward(it item, action Action) bool {
	for {
		up := l.connected()
		if up == nil {
			return false
		}
		if len(it.args) > 0 {
			l.prepare(it.args)
			if !up.expect(it.args, action) {
				continue // it broke; nothing of the command has been sent
			}
		}
		// Before it is sent: who has the reply finds the command counted.
		l.p.count(func(s *Stats) {
			s.RequestBytes += int64(len(it.data))
			if len(it.args) > 0 {
				s.Forwarded[strings.ToUpper(it.args[0])]++
			}
		})
		if up.write(it.data) {
			l.remember(it)
		}
		// Sent or not: the reader deals with what is left open.
		return true
	}
}

// requestsDone passes on that the client has closed its side.
func (l *link) requestsDone(verdict verdict) {
	l.mu.Lock()
	l.requestsEnded = true
	up := l.up
	alone := up == nil || l.repliesEnded
	l.mu.Unlock()
	switch {
	case alone: // nobody is left on either side
		l.sever(false)
	case verdict == deliver:
		closeWrite(up.nc)
	}
}

// deliverReplies takes replies from the stream to the client.
func (l *link) deliverReplies() {
	dice := newDice(l.p.seed, l.conn, Replies)
	deaf := false
	for {
		it, ok := l.replies.take(l.ctx)
		if !ok {
			return
		}
		luck := dice.roll(rules{}) // Reorder is about commands
		verdict := l.p.gate(l, Replies, it, luck)
		if it.kind == deafening && !deaf && verdict != over {
			deaf = true
			l.p.mu.Lock()
			l.lost |= Replies
			l.p.mu.Unlock()
		}
		if deaf && verdict == deliver {
			verdict = discard
		}
		switch {
		case verdict == over:
			return
		case it.kind == severing:
			l.sever(true)
			return
		case it.kind == ending:
			l.repliesDone(verdict)
			return
		case verdict == discard:
			l.p.count(func(s *Stats) { s.DiscardedBytes += int64(len(it.data)) })
			continue
		}
		l.p.count(func(s *Stats) { s.ReplyBytes += int64(len(it.data)) })
		if _, err := l.client.Write(it.data); err != nil {
			l.sever(false)
			return
		}
	}
}

// repliesDone passes on that the server is gone: a server never closes one side
// only, so the client's connection ends.
func (l *link) repliesDone(verdict verdict) {
	l.mu.Lock()
	l.repliesEnded = true
	alone := l.requestsEnded
	l.mu.Unlock()
	if alone || verdict == deliver {
		l.sever(false)
	}
}

func closeWrite(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it fails when the other side has closed already
	}
}
