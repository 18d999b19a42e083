package memory

import (
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// The steps, as their scripts define them: keys and arguments are theirs. The caller holds n.mu.

// at returns the i-th argument, "" where there is none.
func at(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

// integer reads a number that a client has written.
func integer(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// acquire is acquire.lua.
func (n *Node) acquire(keys, args []string, now instant) driver.Reply {
	key, id, waiter, from := keys[0], args[1], at(args, 7), at(args, 8)
	if !n.admitted(keys[2], args[6]) {
		return number(0)
	}
	l := n.at(key, now)
	switch {
	case l.holder == id && waiter != "=":
		return number(int64(l.counter))
	case l.holder != "" && l.holder != from:
		return l.heldBy(now)
	}
	noted, woken := l.next.noted(now), wakeUp{}
	if noted && waiter != "*" {
		woken = l.next.woken
		if left := woken.until - now.ms; woken.waiter != "" && woken.waiter != waiter && left >= 0 && left <= grace {
			return array(text(""), number(left))
		}
	}

	proposed := integer(args[3])
	room := int64(0)
	if lowest := at(args, 9); lowest != "" {
		room = proposed - integer(lowest)
	}
	clamp := script.Clamp.Microseconds()
	counter := min(max(proposed, now.us-clamp), now.us+clamp)
	if l.counter > 0 {
		counter = max(counter, int64(l.counter)+1+room)
	}
	transferred := int64(0)
	if l.holder != "" {
		transferred = 1
	}
	l.holder, l.expires, l.counter = id, now.ms+integer(args[2]), uint64(counter)

	others := int64(0)
	if noted {
		others = 1
	}
	if woken.waiter != "" && woken.waiter == waiter {
		l.leave(waiter)
		if len(l.queue) > 0 {
			l.next.noteFirst(now, l.queue[0].waiter)
		} else {
			l.next, others = next{}, 0
		}
	}
	if noted || from != "" && transferred == 0 {
		return array(number(counter), number(transferred), number(others))
	}
	return number(counter)
}

// extend is extend.lua.
func (n *Node) extend(keys, args []string, now instant) driver.Reply {
	if !n.admitted(keys[2], args[5]) {
		return number(-1)
	}
	l := n.at(keys[0], now)
	switch l.holder {
	case args[1]:
		l.expires = max(l.expires, now.ms+integer(args[2]))
		l.counter = max(l.counter, uint64(integer(args[3])))
		return number(1)
	case "":
		return number(0)
	}
	return l.heldBy(now)
}

// extendBatch is extend_batch.lua.
func (n *Node) extendBatch(keys, args []string, now instant) driver.Reply {
	if !n.admitted(keys[0], args[2]) {
		return number(-1)
	}
	var answers strings.Builder
	for i := 1; i < len(keys); i += 2 {
		a := 3 + (i-1)/2*3
		one := n.extend([]string{keys[i], keys[i+1], keys[0]}, []string{args[0], args[a], args[a+1], args[a+2], args[1], args[2]}, now)
		switch {
		case one.Kind == driver.Array:
			answers.WriteByte('2')
		case one.Int == 0:
			answers.WriteByte('0')
		default:
			answers.WriteByte('1')
		}
	}
	return text(answers.String())
}

// batch is batch.lua.
func (n *Node) batch(keys, args []string, now instant) driver.Reply {
	if !n.admitted(keys[0], args[2]) {
		return text("")
	}
	wanted := int(integer(args[3]))
	var answers strings.Builder
	answer := func(done bool) {
		if done {
			answers.WriteByte('1')
		} else {
			answers.WriteByte('0')
		}
	}
	acquires, releases := keys[1:1+3*wanted], keys[1+3*wanted:]
	for i := range wanted {
		l, a := n.at(acquires[3*i], now), args[4+3*i:]
		proposed := integer(a[2])
		usual := l.holder == "" && !l.next.noted(now) && proposed/1e6 == now.us/1e6 && int64(l.counter) < proposed
		if usual {
			l.holder, l.expires, l.counter = a[0], now.ms+integer(a[1]), uint64(proposed)
		}
		answer(usual)
	}
	for i, id := range args[4+3*wanted:] {
		l := n.at(releases[2*i], now)
		ours := l.holder == id && !l.next.noted(now)
		if ours {
			l.holder = ""
		}
		answer(ours)
	}
	return text(answers.String())
}

// release is release.lua and what follows it in the same script.
func (n *Node) release(key string, args []string, now instant) driver.Reply {
	l := n.at(key, now)
	ours, waiter, from := l.holder == args[0], at(args, 3), ""
	if waiter == ">" {
		waiter = ""
		if ours {
			from = args[0]
		}
	}
	if ours {
		l.counter = max(l.counter, uint64(integer(args[1])))
		l.holder = ""
	}
	woken := false
	if first := l.next.first; ours && waiter == "" && l.next.noted(now) && first != "" && n.publish(key, first, from) {
		// Whoever has left since passes the wake-up on.
		l.next.note(now, wakeUp{waiter: first, until: now.ms + grace, from: from})
		return number(2)
	}
	if l.next.noted(now) || waiter != "" {
		n.quit(key, l, waiter, at(args, 4), now)
		if l.free() {
			woken = n.wake(key, l, now, "", from, true).waiter != ""
		}
	}
	switch {
	case ours && woken:
		return number(2)
	case ours:
		return number(1)
	case l.holder != "":
		return l.heldBy(now)
	}
	return number(0)
}

// quit is what a release does of the place of its attempt's waiter, if it was a waiter's: with the
// ticket 0 the waiter leaves.
func (n *Node) quit(key string, l *lock, waiter, ticket string, now instant) {
	switch {
	case waiter != "" && ticket == "0":
		l.leave(waiter)
		switch noted := l.next.noted(now); {
		case noted && l.next.first == waiter:
			l.next.note(now, wakeUp{})
		case noted && isReader(l.next.woken.waiter) && !isReader(waiter):
			n.wakeReaders(key, l, now, "", l.next.woken.from)
		}
	case waiter != "":
		l.enqueue(waiter, uint64(integer(ticket)), now)
	}
}
