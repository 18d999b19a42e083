package redisconn

import (
	"sync"
	"sync/atomic"
)

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
