package node

import (
	"testing"

	"github.com/redlatch/redlatch/internal/hashslot"
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
