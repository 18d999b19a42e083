package redisconn

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
)

// checker follows both directions of one connection and finds the first thing that cannot be a
// reply to the commands that were sent. One goroutine writes at a time, and one reads. After an
// error the connection must not be used.
//
// The checker counts. A surplus reply that comes while a further command is under way is taken for
// the reply to that command, and found out when the last command has been answered.
type checker struct {
	requests requests
	pending  pending
	replies  replies
	// redirections, if set, counts the replies that name another server. It counts each before the
	// client sees it.
	redirections *atomic.Uint64
	// resp2, if set, tells whether the connection was last asked to speak RESP2.
	resp2 *atomic.Bool
}

var errRequest = errors.New("redis command: not an array of strings")

// requests follows the commands that are written to a connection, in pieces of any
// size. It belongs to the goroutine that writes.
type requests struct {
	line []byte // the beginning of a line whose end is still to come
	left int    // strings of the command still to come
	body int    // bytes of the string still to come, with its CRLF
	// known: the present string tells how the command is answered. word has what came of it.
	known bool
	word  []byte
	kind  commandKind
	hello bool // the command is HELLO, and its version comes next
	named bool // the command's name is over
	// unsubscribed: the command before this one was an UNSUBSCRIBE.
	unsubscribed bool
	resp2        bool
}

// longestName is the length of the longest command name that matters here.
const longestName = len("PUNSUBSCRIBE")

// writing takes in the bytes that are about to be written.
func (c *checker) writing(b []byte) error {
	r := &c.requests
	for len(b) > 0 {
		if r.body > 0 {
			n := min(r.body, len(b))
			if r.known {
				r.word = append(r.word, b[:n]...)
			}
			r.body -= n
			b = b[n:]
			if r.body == 0 {
				c.argument()
			}
			continue
		}
		if len(r.line) == 0 {
			if n, size := shortNumber(b); size > 0 {
				kind := b[0]
				b = b[size:]
				if err := r.header(kind, n); err != nil {
					return err
				}
				continue
			}
		}
		at := bytes.IndexByte(b, '\n')
		if at < 0 {
			if r.line = append(r.line, b...); len(r.line) > maxNumber {
				return errRequest
			}
			return nil
		}
		line := b[:at+1]
		b = b[at+1:]
		if len(r.line) > 0 {
			r.line = append(r.line, line...)
			line, r.line = r.line, r.line[:0]
		}
		if len(line) < len("*1\r\n") || line[len(line)-2] != '\r' {
			return errRequest
		}
		n, ok := digits(line[1 : len(line)-2])
		if !ok {
			return errRequest
		}
		if err := r.header(line[0], int(n)); err != nil {
			return err
		}
	}
	return nil
}

// header takes in a line, which says how many strings or bytes follow.
func (r *requests) header(kind byte, n int) error {
	switch {
	case kind == '*' && r.left == 0 && n > 0:
		r.left, r.named, r.hello, r.kind = n, false, false, ordinary
	case kind == '$' && r.left > 0:
		r.body = n + len("\r\n")
		if r.known = (!r.named || r.hello) && n <= longestName; r.known {
			r.word = r.word[:0]
		}
	default:
		return errRequest
	}
	return nil
}

// argument takes in that a string of the command is over.
func (c *checker) argument() {
	r := &c.requests
	if r.known {
		word := r.word[:len(r.word)-len("\r\n")]
		if r.named {
			r.resp2 = string(word) == "2"
			if c.resp2 != nil {
				c.resp2.Store(r.resp2)
			}
		} else {
			r.kind = kindOf(word)
		}
		r.hello = !r.named && string(word) == "HELLO"
	}
	r.named, r.known = true, false
	if r.left--; r.left > 0 {
		return
	}
	// The client sends a PING after an UNSUBSCRIBE, which gets no reply of its own, and takes the
	// PONG as the reply to both.
	pair := r.unsubscribed && r.kind == ping
	r.unsubscribed = r.kind == unsubscribe
	if !pair {
		c.pending.add(r.kind, r.resp2)
	}
}

// commandKind distinguishes commands by what answers them.
type commandKind uint8

const (
	ordinary commandKind = iota
	// ping is answered like any other, unless it follows an UNSUBSCRIBE.
	ping
	// setUp commands must not be answered by a null, which the client would take for the reply to
	// whatever is sent next.
	setUp
	// subscribe is answered by a push, or by an error. It is for one channel.
	subscribe
	// unsubscribe is answered by a PONG, or by an error and then a PONG.
	unsubscribe
	// refusedUnsubscribe is an unsubscribe that had its error.
	refusedUnsubscribe
)

// kindOf returns the kind of a command, whose name is as the client writes it.
func kindOf(name []byte) commandKind {
	switch string(name) {
	case "PING":
		return ping
	case "HELLO", "AUTH", "SELECT":
		return setUp
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		return subscribe
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		return unsubscribe
	}
	return ordinary
}

// pending has the commands of a connection that were written and are not answered yet.
type pending struct {
	// sent counts the commands that were written and get an answer. answered counts those that had
	// it; it belongs to the goroutine that reads.
	sent     atomic.Uint64
	answered uint64
	// next is the number of the first special command, 0 if there is none. Numbers begin at 1.
	next atomic.Uint64
	// messages: the connection is one for RESP2 messages, which come as arrays.
	messages atomic.Bool

	mu      sync.Mutex // guards special
	special []specialCommand
}

// specialCommand is a command that is not answered like most.
type specialCommand struct {
	number uint64
	kind   commandKind
}

// add counts a command that is written. One goroutine calls it.
func (p *pending) add(kind commandKind, resp2 bool) {
	number := p.sent.Load() + 1
	if kind >= setUp {
		if kind == subscribe && resp2 {
			p.messages.Store(true)
		}
		p.mu.Lock()
		p.special = append(p.special, specialCommand{number, kind})
		p.next.CompareAndSwap(0, number)
		p.mu.Unlock()
	}
	p.sent.Store(number)
}

// none reports whether no command waits for an answer.
func (p *pending) none() bool { return p.answered == p.sent.Load() }

// kind returns the kind of the command that is answered next.
func (p *pending) kind() commandKind {
	if p.none() || p.next.Load() != p.answered+1 {
		return ordinary
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.special[0].kind
}

// refused takes in that the next command, an UNSUBSCRIBE, was answered by an error.
func (p *pending) refused() {
	p.mu.Lock()
	p.special[0].kind = refusedUnsubscribe
	p.mu.Unlock()
}

// done counts the answer to the next command.
func (p *pending) done() {
	p.answered++
	if p.next.Load() != p.answered {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.special = append(p.special[:0], p.special[1:]...)
	next := uint64(0)
	if len(p.special) > 0 {
		next = p.special[0].number
	}
	p.next.Store(next)
}
