package memory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// What script.Grace and script.Patience are in ms.
var grace, patience = script.Grace.Milliseconds(), script.Patience.Milliseconds()

// place is a waiter's in the wait queue for a lock.
type place struct {
	waiter string
	ticket uint64
	// heartbeat is until when, in ms, the waiter is believed to be there.
	heartbeat int64
}

// next is what is noted of who is next: that somebody waits, and who was the first in the queue
// when last looked at, or who was woken up.
type next struct {
	until int64 // in ms; it is forgotten then
	first string
	woken wakeUp
}

// wakeUp is who was woken up, until when, in ms, and who left it the keys on other nodes.
type wakeUp struct {
	waiter string
	until  int64
	from   string
}

// noted reports that somebody waits.
func (x *next) noted(now instant) bool { return x.until >= now.ms }

func (x *next) note(now instant, w wakeUp) { *x = next{until: now.ms + patience, woken: w} }

// noteFirst notes who is the first in the queue; one that hears nothing is not sent for.
func (x *next) noteFirst(now instant, waiter string) {
	*x = next{until: now.ms + patience}
	if !isDeaf(waiter) {
		x.first = waiter
	}
}

// isDeaf reports that a waiter hears no messages.
func isDeaf(waiter string) bool { return strings.HasPrefix(waiter, "-") }

// rank is the waiter's index in the queue, -1 where it is not there.
func (l *lock) rank(waiter string) int {
	return slices.IndexFunc(l.queue, func(p place) bool { return p.waiter == waiter })
}

func (l *lock) leave(waiter string) {
	l.queue = slices.DeleteFunc(l.queue, func(p place) bool { return p.waiter == waiter })
}

// enqueue gives a waiter its place, or keeps it.
func (l *lock) enqueue(waiter string, ticket uint64, now instant) {
	l.leave(waiter)
	l.queue, l.lapses = append(l.queue, place{waiter: waiter, ticket: ticket, heartbeat: now.ms + patience}), now.ms+2*patience
	slices.SortFunc(l.queue, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
	})
}

// enqueue is enqueue.lua.
func (n *Node) enqueue(keys, args []string, now instant) driver.Reply {
	key, waiter, ticket := keys[0], args[1], uint64(integer(args[2]))
	if !n.admitted(keys[1], args[3]) {
		return number(0)
	}
	l := n.at(key, now)
	l.queue = slices.DeleteFunc(l.queue, func(p place) bool { return p.heartbeat < now.ms || p.heartbeat > now.ms+patience })
	if ticket == 0 {
		ticket = uint64(now.us)
		if i := l.rank(waiter); i >= 0 {
			ticket = l.queue[i].ticket
		} else if isReader(waiter) {
			ticket = l.placeOf(now)
		}
	}
	if ticket > uint64(now.us+1000*patience) {
		ticket = uint64(now.us)
	}
	l.enqueue(waiter, ticket, now)
	numbered := text(strconv.FormatUint(ticket, 10))
	holder := l
	if args[0] == script.EnqueueSlot {
		_, slots := n.slots(key, integer(args[4]), now)
		holder = heldSlot(slots)
	}
	if holder != nil && holder.holder != "" && !(isReader(waiter) && l.free()) {
		if !l.next.noted(now) {
			l.next = next{}
		}
		ahead := l.rank(waiter)
		if l.next.until = now.ms + patience; ahead == 0 && l.next.woken.waiter == "" {
			l.next.noteFirst(now, waiter)
		}
		return array(number(int64(ahead)), numbered, text(holder.holder), number(holder.expires-now.ms))
	}
	w := n.wake(key, l, now, waiter, "", false)
	ahead := l.rank(waiter)
	switch {
	case w.waiter == waiter, isReader(waiter) && isReader(w.waiter) && !l.behind(waiter):
		ahead = 0
	default:
		ahead = max(ahead, 1)
	}
	if w.waiter == "" {
		w.until = now.ms + grace
	}
	return array(number(int64(ahead)), numbered, text(""), number(w.until-now.ms), text(w.from))
}

// wake is the function of queue.lua: it wakes up the first in the queue to take the key, which is
// free. self asks for it, and needs no message; again repeats the message to one who was woken up
// already. It returns who was woken up, "" for nobody.
func (n *Node) wake(key string, l *lock, now instant, self, from string, again bool) wakeUp {
	said := wakeUp{}
	if l.next.noted(now) {
		said = l.next.woken
	}
	from = cmp.Or(from, said.from)
	i := l.rank(said.waiter)
	queued := i >= 0
	if isReader(said.waiter) {
		queued = len(l.queue) > 0 && isReader(l.queue[0].waiter)
	}
	if said.waiter != "" && said.until >= now.ms && said.until <= now.ms+grace && queued {
		if from != said.from {
			said.from = from
			l.next.note(now, said)
		}
		if again && !isDeaf(said.waiter) {
			n.publish(key, said.waiter, from)
		}
		return said
	}
	if i >= 0 && said.waiter != self && l.queue[i].heartbeat-patience <= said.until-grace {
		l.leave(said.waiter)
	}
	for len(l.queue) > 0 {
		head := l.queue[0]
		if isReader(head.waiter) {
			if n.wakeReaders(key, l, now, self, from) {
				w := wakeUp{waiter: vote.Reader, until: now.ms + grace, from: from}
				l.next.note(now, w)
				return w
			}
			continue
		}
		there := head.heartbeat > now.ms && head.heartbeat <= now.ms+patience
		if there && head.waiter != self && !isDeaf(head.waiter) {
			there = n.publish(key, head.waiter, from)
		}
		if there {
			w := wakeUp{waiter: head.waiter, until: now.ms + grace, from: from}
			l.next.note(now, w)
			return w
		}
		l.leave(head.waiter)
	}
	l.next = next{}
	return wakeUp{}
}

// publish is publish.lua: it reports whether somebody listens.
func (n *Node) publish(key, waiter, from string) bool {
	client, _, _ := strings.Cut(strings.TrimPrefix(waiter, vote.Reader), "/")
	s := n.subscribers["redlatch:wake:"+client]
	if s == nil {
		return false
	}
	select {
	case s.messages <- message{fmt.Sprintf("%s %d %s%s", waiter, len(from), from, key), time.Now()}:
	default: // a lost message costs the waiter time
	}
	return true
}
