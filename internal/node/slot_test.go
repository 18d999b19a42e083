package node

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/vote"
)

// The key of a slot is told from all others, whatever the lock is called, and lies where the lock's does.
func TestSlotKeys(t *testing.T) {
	for _, key := range []string{"a", "a:b", "3:a", "{t}:a", "x}:permit:3:a", "{}:permit:", "a{b}:permit:1:c", "redlatch", ":"} {
		queue := PermitsKey(key)
		for slot, text := range map[string]string{"": queue, "0": SlotKey(queue, 0), "255": SlotKey(queue, 255)} {
			ofQueue, ofSlot, name, ok := CutSlot(text)
			if !ok || ofQueue != queue || ofSlot != slot || name != key || !hashslot.Same(text, key) {
				t.Errorf("%q is slot %q of %q in %q, %t", text, ofSlot, name, ofQueue, ok)
			}
			for _, side := range append(SideKeys(text), SideKeys(key)...) {
				if _, _, _, ok := CutSlot(side); ok || !hashslot.Same(side, key) {
					t.Errorf("%q is taken for a slot", side)
				}
			}
		}
		if _, _, _, ok := CutSlot(key); ok {
			t.Errorf("%q is taken for a slot", key)
		}
	}
}

// chooser is a connection to a server that grants a slot, and notes which waiter asks for it.
type chooser struct {
	scripted
	waiter string
}

func (c *chooser) EvalSHA(_ context.Context, _ string, _, args []string) (driver.Reply, error) {
	c.waiter = args[7]
	return driver.Reply{Kind: driver.Array, Array: []driver.Reply{{Kind: driver.Int, Int: 7}, {Kind: driver.Int, Int: 1}, {Kind: driver.Int}}}, nil
}

// A slot is asked for in the name of who waits for it, or in nobody's; or without regard to those who wait.
func TestWhoIsToHaveTheSlot(t *testing.T) {
	t.Parallel()
	conn := new(chooser)
	n := voter(t, conn, math.MaxInt)
	for want, r := range map[string]vote.Acquire{"": {}, "me": {Ticket: vote.Ticket{Waiter: "me", Number: 5}}, "*": {Barge: true}} {
		r.Key, r.ID, r.TTL, r.Proposed, r.Slots = PermitsKey("x"), "mine", time.Second, 7, 2
		if a := n.Choose(t.Context(), r); a.Verdict != vote.Granted || a.Slot != 1 || conn.waiter != want {
			t.Errorf("asked for by %q, not %q: %+v", conn.waiter, want, a)
		}
	}
}
