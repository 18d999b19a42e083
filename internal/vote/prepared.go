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

// Prepared are those parts of a request, as they are sent, that are the same on all nodes and in
// each step of a holder. They are made once, in one text, which saves each step some allocations.
type Prepared struct {
	text string
	// text has the counter's name, which ends in the key, from key on; then, from next on, the name
	// of the key that says who was woken up; then, for an acquire step, the TTL and the counter,
	// from ttl and counter on.
	key, next, ttl, counter int32
}

// Prepare returns r.Prepared if that is for the request's key, else what it should be.
func (r *Acquire) Prepare() Prepared {
	if r.Prepared.isFor(r.Key) {
		return r.Prepared
	}
	var room [40]byte
	numbers := strconv.AppendInt(room[:0], r.TTL.Milliseconds(), 10)
	n := len(numbers)
	numbers = strconv.AppendUint(numbers, r.Proposed+uint64(r.More), 10)
	return prepare(r.Key, numbers, n)
}

// CounterAndNext returns the names of two keys beside key: the counter, and the key that says who was
// woken up. It takes them from p if p is for key.
func (p Prepared) CounterAndNext(key string) (counter, next string) {
	if !p.isFor(key) {
		p = prepare(key, nil, 0)
	}
	return p.text[:p.next], p.text[p.next:p.ttl]
}

// Numbers returns the TTL and the proposed counter of an acquire step.
func (p Prepared) Numbers() (ttl, proposed string) {
	return p.text[p.ttl:p.counter], p.text[p.counter:]
}

func (p Prepared) isFor(key string) bool { return p.text != "" && p.text[p.key:p.next] == key }

// prepare makes the names for key and puts numbers behind them, the second of which begins at n.
func prepare(key string, numbers []byte, n int) Prepared {
	tag := hashslot.Tag(key)
	text := KeyPrefix + "{" + tag + "}:token:" + key + KeyPrefix + "{" + tag + "}:next:" + key + string(numbers)
	ttl := len(text) - len(numbers)
	next := (ttl + len("token") - len("next")) / 2
	return Prepared{text, int32(next - len(key)), int32(next), int32(ttl), int32(ttl + n)}
}
