package node

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/script"
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

// choosing is a connection to a server that answers a call for a slot by reply and err.
type choosing struct {
	scripted
	reply driver.Reply
	err   error
	// key and id are those of the last release.
	key, id string
}

func (c *choosing) EvalSHA(_ context.Context, _ string, keys, args []string) (driver.Reply, error) {
	if args[0] == script.Slot {
		return c.reply, c.err
	}
	c.key, c.id = keys[0], args[0]
	c.released = append(c.released, c.id)
	return deleted, nil
}

// A slot that may have been granted is released, whichever it is, where no answer says which, or where its counter is none.
func TestSlotThatMayHaveBeenGranted(t *testing.T) {
	t.Parallel()
	granted := func(counter int64) driver.Reply {
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{{Kind: driver.Int, Int: counter}, {Kind: driver.Int, Int: 1}, {Kind: driver.Int}}}
	}
	held := driver.Reply{Kind: driver.Array, Array: []driver.Reply{{Kind: driver.Text, Text: "theirs"}, {Kind: driver.Int, Int: 5000}}}
	for name, c := range map[string]struct {
		reply    driver.Reply
		err      error
		want     vote.Verdict
		released bool
	}{
		"granted":           {reply: granted(7), want: vote.Granted},
		"held":              {reply: held, want: vote.Held},
		"not sent":          {err: driver.NotSent(errors.New("no connection")), want: vote.NotSent},
		"no answer":         {err: errors.New("the connection broke"), want: vote.Unknown, released: true},
		"counter too large": {reply: granted(math.MaxInt64), want: vote.Refused, released: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &choosing{scripted: scripted{answer: released}, reply: c.reply, err: c.err}
			n := voter(t, conn, math.MaxInt)
			a := n.Choose(t.Context(), vote.Acquire{Key: PermitsKey("x"), ID: "mine", TTL: 10 * time.Second, Proposed: 7, Slots: 2})
			synctest.Wait()
			if a.Verdict != c.want {
				t.Errorf("%s: %+v", name, a)
			}
			if got := conn.id == "mine" && conn.key == PermitsKey("x"); got != c.released || len(conn.released) > 1 {
				t.Errorf("%s: released %t: %q of %q, %d times", name, got, conn.id, conn.key, len(conn.released))
			}
		})
	}
}
