package vote

import (
	"strconv"

	"github.com/redlatch/redlatch/internal/hashslot"
)

// KeyPrefix begins every key that is not a lock.
const KeyPrefix = "redlatch:"

// SideKey names a key beside that of a lock, in its Cluster hash slot, so that one script may touch both.
func SideKey(kind, key string) string {
	return KeyPrefix + "{" + hashslot.Tag(key) + "}:" + kind + ":" + key
}

// Words are those parts of a request, as they are sent, that are the same on all nodes and in each
// step of a holder. They are made once, in one text.
type Words struct {
	text string
	// text has the counter's name, which ends in the key, from key on; then, from next on, the name
	// of the key that says who was woken up; then, for an acquire step, the TTL and the counter,
	// from ttl and counter on.
	key, next, ttl, counter int32
}

// Words returns the request's words: r.Made, if those are for its key, else new ones.
func (r *Acquire) Words() Words {
	if w := r.Made; w.are(r.Key) {
		return w
	}
	var room [40]byte
	numbers := strconv.AppendInt(room[:0], r.TTL.Milliseconds(), 10)
	n := len(numbers)
	numbers = strconv.AppendUint(numbers, r.Proposed+uint64(r.More), 10)
	return newWords(r.Key, numbers, n)
}

// SideKeys returns the names of two keys beside key: the counter, and the key that says who was
// woken up. It takes them from w if w is for key.
func (w Words) SideKeys(key string) (counter, next string) {
	if !w.are(key) {
		w = newWords(key, nil, 0)
	}
	return w.text[:w.next], w.text[w.next:w.ttl]
}

// Numbers returns the TTL and the proposed counter of an acquire step.
func (w Words) Numbers() (ttl, proposed string) { return w.text[w.ttl:w.counter], w.text[w.counter:] }

// are reports whether the words are for key.
func (w Words) are(key string) bool { return w.text != "" && w.text[w.key:w.next] == key }

// newWords makes the names for key and puts numbers behind them, the second of which begins at n.
func newWords(key string, numbers []byte, n int) Words {
	tag := hashslot.Tag(key)
	text := KeyPrefix + "{" + tag + "}:token:" + key + KeyPrefix + "{" + tag + "}:next:" + key + string(numbers)
	ttl := len(text) - len(numbers)
	next := (ttl + len("token") - len("next")) / 2
	return Words{text, int32(next - len(key)), int32(next), int32(ttl), int32(ttl + n)}
}
