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

// Words are parts of a request as they are sent, which are the same on all nodes and in each step
// of a holder: they are made once, in one text.
type Words struct {
	text string
	// The text is the counter's name, which ends in the key, from key on; the name of who was woken
	// up, from next on; and of an acquire step the TTL and the counter, from ttl and counter on.
	key, next, ttl, counter int32
}

// Words returns the request's words: those that it has, if they are for its key.
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

// SideKeys names the counter and who was woken up beside key, by w if that is for it.
func (w Words) SideKeys(key string) (counter, next string) {
	if !w.are(key) {
		w = newWords(key, nil, 0)
	}
	return w.text[:w.next], w.text[w.next:w.ttl]
}

// Numbers are the TTL and the counter that is proposed, of an acquire step.
func (w Words) Numbers() (ttl, proposed string) { return w.text[w.ttl:w.counter], w.text[w.counter:] }

// are reports whether they are for key.
func (w Words) are(key string) bool { return w.text != "" && w.text[w.key:w.next] == key }

// newWords has numbers, the second of which begins at n, behind the names.
func newWords(key string, numbers []byte, n int) Words {
	tag := hashslot.Tag(key)
	text := KeyPrefix + "{" + tag + "}:token:" + key + KeyPrefix + "{" + tag + "}:next:" + key + string(numbers)
	ttl := len(text) - len(numbers)
	next := (ttl + len("token") - len("next")) / 2
	return Words{text, int32(next - len(key)), int32(next), int32(ttl), int32(ttl + n)}
}
