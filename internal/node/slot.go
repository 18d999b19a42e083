package node

import (
	"context"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// PermitsKey names the queue for the permits of the lock with this key. Nothing is stored under it.
func PermitsKey(key string) string { return KeyPrefix + "{" + hashslot.Tag(key) + slotMark + ":" + key }

// SlotKey names the key of a slot, given the key of its queue. It is a lock's key like any other,
// except that those who wait for it are in the queue for all slots.
func SlotKey(queue string, slot int) string {
	head, name, _ := strings.Cut(queue, slotMark)
	return head + slotMark + strconv.Itoa(slot) + name
}

// slotMark comes before the number of a slot. A tag never contains it.
const slotMark = "}:permit:"

// CutSlot takes apart the key of a slot, or that of the slots' queue, for which slot is "". No
// other key begins as these do.
func CutSlot(key string) (queue, slot, name string, ok bool) {
	if !strings.HasPrefix(key, KeyPrefix) {
		return "", "", "", false
	}
	head, rest, _ := strings.Cut(key, "}")
	rest, ok = strings.CutPrefix("}"+rest, slotMark) // in the key of a slot's counter the mark comes later
	slot, name, _ = strings.Cut(rest, ":")
	return head + slotMark + ":" + name, slot, name, ok
}

// Choose asks the node, which keeps the queue, for one of the slots, whichever is free. The
// answer's Slot is the one that was granted; the other nodes must be asked for that slot's key.
// If no answer says which slot was granted, it is released in the background.
func (n *Node) Choose(ctx context.Context, r vote.Acquire) vote.Answer {
	proposed := strconv.FormatUint(r.Proposed, 10)
	waiter := r.Ticket.Waiter
	if r.Barge {
		waiter = "*"
	}
	keys := []string{r.Key, n.admissionKey, NextKey(r.Key)}
	args := []string{script.Slot, r.ID, milliseconds(r.TTL), proposed, proposed[:max(0, len(proposed)-6)], n.counterTTL, "",
		waiter, strconv.Itoa(int(r.Slots)), strconv.Itoa(int(r.First))}
	reply, err := n.vote(ctx, votingStep{keys: keys, args: args, expected: 6, refusal: 0})
	a := answer(reply, ofAnotherKind(err))
	switch {
	case a.Verdict == vote.Granted && isCounter(a.Counter):
		a.Slot, a.Transferred = uint8(reply.Array[1].Int), false
		n.noteVote()
	case a.Verdict == vote.Held:
		n.noteVote()
	case a.MayHold():
		release := vote.Release{Key: r.Key, ID: r.ID, TTL: r.TTL}
		n.released(release, driver.Reply{}, errNoAnswer)
		if a.Verdict == vote.Granted {
			a = badCounter(CounterKey(SlotKey(r.Key, int(reply.Array[1].Int))), a.Counter)
		}
	}
	return a
}
