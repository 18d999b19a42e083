package memory

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// The steps of readers, as their scripts define them. The caller holds n.mu.

// isReader reports that a waiter is a reader.
func isReader(waiter string) bool { return strings.HasPrefix(waiter, vote.Reader) }

// under is the counter under which readers have the key; shared, that they have.
func (l *lock) under() (counter uint64, shared bool) {
	text, shared := strings.CutPrefix(l.holder, vote.SharedMark+" ")
	counter, _ = strconv.ParseUint(text, 10, 64)
	return counter, shared
}

// share has a reader have the key, which readers have.
func (l *lock) share(id string, ttl int64, now instant) {
	l.readers[id] = max(l.readers[id], now.ms+ttl)
	for other, ends := range l.readers {
		if ends <= now.ms {
			delete(l.readers, other)
		}
	}
	l.expires = max(l.expires, now.ms+ttl)
}

// free reports whether the key is for the first in the queue to take.
func (l *lock) free() bool {
	_, shared := l.under()
	return l.holder == "" || shared && len(l.queue) > 0 && isReader(l.queue[0].waiter)
}

// behind reports whether a writer is ahead of a reader.
func (l *lock) behind(reader string) bool {
	ahead := l.queue
	if i := l.rank(reader); i >= 0 {
		ticket := l.queue[i].ticket
		ahead = l.queue[:slices.IndexFunc(l.queue, func(p place) bool { return p.ticket >= ticket })]
	}
	ahead = ahead[:min(len(ahead), 64)]
	return len(ahead) == 64 || slices.ContainsFunc(ahead, func(p place) bool { return !isReader(p.waiter) })
}

// placeOf is the ticket of a reader who comes to the queue.
func (l *lock) placeOf(now instant) uint64 {
	if _, shared := l.under(); l.holder != "" && !shared {
		return 1
	}
	if i := slices.IndexFunc(l.queue, func(p place) bool { return !isReader(p.waiter) }); i >= 0 {
		return l.queue[i].ticket + 1
	}
	return uint64(now.us)
}

// wakeReaders is the function of queue.lua.
func (n *Node) wakeReaders(key string, l *lock, now instant, self, from string) (woken bool) {
	for _, p := range slices.Clone(l.queue[:min(len(l.queue), 256)]) {
		if !isReader(p.waiter) {
			break
		}
		there := p.heartbeat > now.ms && p.heartbeat <= now.ms+patience
		if there && p.waiter != self && !isDeaf(strings.TrimPrefix(p.waiter, vote.Reader)) {
			there = n.publish(key, p.waiter, from)
		}
		if there {
			woken = true
			l.queue[l.rank(p.waiter)].heartbeat = now.ms + grace
		} else {
			l.leave(p.waiter)
		}
	}
	return woken
}

// acquireShared is acquire_shared.lua.
func (n *Node) acquireShared(keys, args []string, now instant) driver.Reply {
	key, id, ttl, waiter, from := keys[0], args[1], integer(args[2]), at(args, 7), at(args, 8)
	if !n.admitted(keys[2], args[6]) {
		return number(0)
	}
	l := n.at(key, now)
	under, shared := l.under()
	if shared && l.readers[id] > now.ms {
		return number(int64(max(l.counter, under)))
	}
	if l.holder != "" && !shared && (l.holder != from || from == "") {
		return l.heldBy(now)
	}
	noted, woken := l.next.noted(now), wakeUp{}
	if noted && waiter != "*" {
		woken = l.next.woken
		if left := woken.until - now.ms; woken.waiter != "" && !isReader(woken.waiter) && left >= 0 && left <= grace {
			return array(text(""), number(left))
		}
		if l.behind(waiter) {
			left := int64(0)
			if l.holder != "" {
				left = l.expires - now.ms
			}
			return array(text(""), number(left))
		}
	}
	transferred := int64(0)
	if shared {
		l.counter = max(l.counter, under)
	} else {
		clamp := script.Clamp.Microseconds()
		counter := uint64(min(max(integer(args[3]), now.us-clamp), now.us+clamp))
		if l.counter > 0 {
			counter = max(counter, l.counter+1)
		}
		if l.holder != "" {
			transferred = 1
		}
		l.counter, l.holder, l.expires = counter, vote.SharedMark+" "+strconv.FormatUint(counter, 10), now.ms+ttl
		l.readers = make(map[string]int64)
	}
	l.share(id, ttl, now)
	others := int64(0)
	if noted {
		others = 1
	}
	if noted && waiter != "*" {
		l.leave(waiter)
		switch {
		case len(l.queue) == 0:
			l.next, others = next{}, 0
		case !isReader(woken.waiter) || !isReader(l.queue[0].waiter):
			l.next.noteFirst(now, l.queue[0].waiter)
		}
	}
	return array(number(int64(l.counter)), number(transferred), number(others))
}

// extendShared is extend_shared.lua.
func (n *Node) extendShared(keys, args []string, now instant) driver.Reply {
	if !n.admitted(keys[2], args[5]) {
		return number(-1)
	}
	l := n.at(keys[0], now)
	_, shared := l.under()
	switch {
	case !shared && l.holder != "":
		return l.heldBy(now)
	case !shared || l.readers[args[1]] <= now.ms:
		return number(0)
	}
	l.share(args[1], integer(args[2]), now)
	l.counter = max(l.counter, uint64(integer(args[3])))
	return number(1)
}

// releaseShared is release_shared.lua.
func (n *Node) releaseShared(key string, args []string, now instant) driver.Reply {
	l := n.at(key, now)
	_, shared := l.under()
	ours, waiter := shared && l.readers[args[0]] > now.ms, at(args, 3)
	if ours {
		l.counter = max(l.counter, uint64(integer(args[1])))
		delete(l.readers, args[0])
		last := int64(0)
		for _, ends := range l.readers {
			last = max(last, ends)
		}
		if l.expires = last; last <= now.ms {
			l.holder, l.readers = "", nil
		}
	}
	woken := false
	if l.next.noted(now) || waiter != "" {
		n.quit(key, l, waiter, at(args, 4), now)
		if l.free() {
			woken = n.wake(key, l, now, "", "", true).waiter != ""
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
