package memory

import (
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// The steps for one of several slots, as their scripts define them. The caller holds n.mu.

// slots are the keys of the first k slots, by that of their queue, and the slots.
func (n *Node) slots(queue string, k int64, now instant) (keys []string, locks []*lock) {
	head, tail, _ := strings.Cut(queue, "}:permit:")
	for i := range k {
		key := head + "}:permit:" + strconv.FormatInt(i, 10) + tail
		keys, locks = append(keys, key), append(locks, n.at(key, now))
	}
	return keys, locks
}

// heldSlot is the slot that may expire first; nil when one of them is free.
func heldSlot(slots []*lock) *lock {
	var first *lock
	for _, l := range slots {
		if l.holder == "" {
			return nil
		}
		if first == nil || l.expires < first.expires {
			first = l
		}
	}
	return first
}

// slot is slot.lua.
func (n *Node) slot(keys, args []string, now instant) driver.Reply {
	id, waiter, k, begin := args[1], args[7], integer(args[8]), integer(args[9])
	if !n.admitted(keys[1], args[6]) {
		return number(0)
	}
	queue := n.at(keys[0], now)
	names, slots := n.slots(keys[0], k, now)
	take := func(i int64) driver.Reply {
		return n.acquire([]string{names[i], "", keys[1], ""}, args[:7], now)
	}
	noted := queue.next.noted(now)
	answer := func(counter driver.Reply, i int64, others bool) driver.Reply {
		waiting := map[bool]int64{true: 1}
		return array(counter, number(i), number(waiting[others]))
	}
	var free []int64
	for j := range k {
		i := (begin + j) % k
		switch slots[i].holder {
		case id:
			return answer(take(i), i, noted)
		case "":
			free = append(free, i)
		}
	}
	if len(free) == 0 {
		return heldSlot(slots).heldBy(now)
	}
	woken := wakeUp{}
	if noted {
		woken = queue.next.woken
	}
	if left := woken.until - now.ms; woken.waiter != "" && woken.waiter != waiter && waiter != "*" && left >= 0 && left <= grace {
		return array(text(""), number(left))
	}
	counter := take(free[0])
	if woken.waiter != "" && woken.waiter == waiter {
		queue.leave(waiter)
		switch {
		case len(queue.queue) > 0 && len(free) > 1:
			queue.next = next{}
			noted = n.wake(keys[0], queue, now, "", "", false).waiter != ""
		case len(queue.queue) > 0:
			queue.next.noteFirst(now, queue.queue[0].waiter)
		default:
			queue.next, noted = next{}, false
		}
	}
	return answer(counter, free[0], noted)
}

// releaseSlot is release_slot.lua.
func (n *Node) releaseSlot(keys, args []string, now instant) driver.Reply {
	slot, waiter := n.at(keys[0], now), at(args, 3)
	if keys[0] == keys[2] && args[0] != waiter {
		_, slots := n.slots(keys[2], script.MaxSlots, now)
		for _, one := range slots {
			if one.holder == args[0] {
				slot = one
			}
		}
	}
	ours := slot.holder == args[0]
	if ours {
		slot.counter = max(slot.counter, uint64(integer(args[1])))
		slot.holder = ""
	}
	queue := n.at(keys[2], now)
	if noted := queue.next.noted(now); noted || waiter != "" {
		turn := noted && waiter != "" && queue.next.woken.waiter == waiter
		n.quit(keys[2], queue, waiter, at(args, 4), now)
		if ours || turn {
			n.wake(keys[2], queue, now, "", "", true)
		}
	}
	switch {
	case ours:
		return number(1)
	case slot.holder != "":
		return slot.heldBy(now)
	}
	return number(0)
}
