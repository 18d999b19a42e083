package memory

import (
	"slices"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// The steps for several locks at once, as their scripts define them. The caller holds n.mu.

// together are the locks whose keys a step for several names, three of each.
func (n *Node) together(keys []string, now instant) (names []string, locks []*lock) {
	for i := 0; i+2 < len(keys); i += 3 {
		names, locks = append(names, keys[i]), append(locks, n.at(keys[i], now))
	}
	return names, locks
}

// acquireAll is acquire_all.lua.
func (n *Node) acquireAll(keys, args []string, now instant) driver.Reply {
	id, waiter, ticket := args[1], args[7], uint64(integer(args[9]))
	if !n.admitted(keys[len(keys)-1], args[6]) {
		return number(0)
	}
	_, locks := n.together(keys, now)
	first := locks[0]
	from := func(i int) string {
		if i == 0 {
			return args[8]
		}
		return at(args, 9+i)
	}
	answer := func(counter uint64, transferred, others bool) driver.Reply {
		yes := map[bool]int64{true: 1}
		return array(number(int64(counter)), number(yes[transferred]), number(yes[others]))
	}
	if !slices.ContainsFunc(locks, func(l *lock) bool { return l.holder != id || l.counter != first.counter }) {
		return answer(first.counter, false, first.next.noted(now))
	}
	for i, l := range locks {
		if l.holder != "" && l.holder != from(i) {
			return array(text(l.holder), number(l.expires-now.ms), number(int64(i)))
		}
	}
	turn := false
	for i, l := range locks {
		woken := l.next.woken
		if !l.next.noted(now) || woken.waiter == "" {
			continue
		}
		switch left := woken.until - now.ms; {
		case i == 0 && woken.waiter == waiter:
			turn = true
		case waiter == "*" && (i == 0 || from(i) != ""):
		case left >= 0 && left <= grace && (i == 0 || !l.later(woken.waiter, ticket)):
			return array(text(""), number(left), number(int64(i)))
		}
	}

	clamp := script.Clamp.Microseconds()
	counter := uint64(min(max(integer(args[3]), now.us-clamp), now.us+clamp))
	for _, l := range locks {
		if l.counter > 0 {
			counter = max(counter, l.counter+1)
		}
	}
	transferred, others := first.holder != "", first.next.noted(now)
	for _, l := range locks {
		l.holder, l.expires, l.counter = id, now.ms+integer(args[2]), counter
	}
	if turn {
		first.leave(waiter)
		if others = len(first.queue) > 0; others {
			first.next.noteFirst(now, first.queue[0].waiter)
		} else {
			first.next = next{}
		}
	}
	return answer(counter, transferred, others)
}

// later is the function of acquire_all.lua.
func (l *lock) later(waiter string, ticket uint64) bool {
	i := l.rank(waiter)
	return ticket > 0 && i >= 0 && l.queue[i].ticket >= ticket
}

// extendAll is extend_all.lua.
func (n *Node) extendAll(keys, args []string, now instant) driver.Reply {
	if !n.admitted(keys[len(keys)-1], args[5]) {
		return number(-1)
	}
	_, locks := n.together(keys, now)
	for _, l := range locks {
		if l.holder != "" && l.holder != args[1] {
			return l.heldBy(now)
		}
	}
	if slices.ContainsFunc(locks, func(l *lock) bool { return l.holder == "" }) {
		return number(0)
	}
	for _, l := range locks {
		l.expires = max(l.expires, now.ms+integer(args[2]))
		l.counter = max(l.counter, uint64(integer(args[3])))
	}
	return number(1)
}

// releaseAll is release_all.lua.
func (n *Node) releaseAll(keys, args []string, now instant) driver.Reply {
	names, locks := n.together(keys, now)
	var other *lock
	gone, woken := false, false
	for i, l := range locks {
		waiter, ticket := "", at(args, 4)
		if i == 0 {
			waiter = at(args, 3)
		}
		switch l.holder {
		case args[0]:
			l.counter = max(l.counter, uint64(integer(args[1])))
			l.holder = ""
		case "":
			gone = true
		default:
			if other == nil {
				other = l
			}
		}
		if !l.next.noted(now) && waiter == "" {
			continue
		}
		n.quit(names[i], l, waiter, ticket, now)
		if l.free() {
			woken = n.wake(names[i], l, now, "", "", true).waiter != "" || woken
		}
	}
	switch {
	case other != nil:
		return other.heldBy(now)
	case gone:
		return number(0)
	case woken:
		return number(2)
	}
	return number(1)
}
