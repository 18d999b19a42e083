// Package hashslot puts keys into the Cluster slot of another, so that one script
// may touch both (Redis Cluster specification, "Hash tags").
package hashslot

import (
	"strconv"
	"strings"
	"sync"
)

// Tag returns a text that, in braces at the head of another key, sends that key
// to key's slot.
func Tag(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	if !strings.Contains(key, "}") {
		return key
	}
	// The whole key is hashed, but a tag ends at its first brace. Any other text
	// of the same slot does; one number in 16384 is.
	return TagOf(Of(key))
}

// Slots is the number of slots of a Cluster.
const Slots = 16384

// TagOf returns a tag of the slot, the same for everybody: the smallest number.
func TagOf(slot uint16) string { return tags()[slot] }

var tags = sync.OnceValue(func() *[Slots]string {
	table := new([Slots]string)
	for n, missing := 0, Slots; missing > 0; n++ {
		tag := strconv.Itoa(n)
		if slot := Of(tag); table[slot] == "" {
			table[slot] = tag
			missing--
		}
	}
	return table
})

// Same reports whether two keys are in one slot.
func Same(a, b string) bool { return Of(Tag(a)) == Of(Tag(b)) }

// Of returns the slot of a text without tags: CRC-16/XMODEM modulo the number of
// slots.
func Of(text string) uint16 {
	var crc uint16
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return crc % Slots
}
