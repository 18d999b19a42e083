package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/sim/server"
)

// alike are the steps of readers, and of who waits for a permit, and those of locks that they are like.
var alike = map[string]string{
	script.AcquireShared: script.Acquire, script.ConfirmShared: script.Confirm,
	script.ExtendShared: script.Extend, script.RepairShared: script.Repair,
	script.EnqueueSlot: script.Enqueue,
}

// marker begins what a lock's key has while readers have it.
const marker = "redlatch:shared "

// holders is who has a lock's key on a node: one, or readers together.
type holders struct {
	value   string // what the key has, "" where there is none
	expires int64  // when it does, in ms of the node's clock
	// readers are those who have it together, with the ms at which each one's time ends; nil where
	// the value is a holder id.
	readers map[string]int64
}

// has reports whether id is one of them.
func (h holders) has(id string) bool {
	_, reads := h.readers[id]
	return id != "" && (reads || h.readers == nil && h.value == id)
}

// ids are the holder ids.
func (h holders) ids() []string {
	switch {
	case h.readers != nil:
		return slices.Sorted(maps.Keys(h.readers))
	case h.value != "":
		return []string{h.value}
	}
	return nil
}

func (h holders) String() string {
	if h.readers == nil {
		return fmt.Sprintf("%q", h.value)
	}
	return fmt.Sprintf("%q and readers %q", h.value, h.ids())
}

// holdersIn is who has the key in these data at that time.
func holdersIn(data server.Data, name string, at time.Time) holders {
	value, ok := data.Value(name, at)
	if !ok {
		return holders{}
	}
	h := holders{value: value, expires: data.Expires(name).UnixMilli()}
	if strings.HasPrefix(value, marker) {
		h.readers = make(map[string]int64)
		for id, end := range data.Scores(sideKey("readers", name), at) {
			if int64(end) > at.UnixMilli() {
				h.readers[id] = int64(end)
			}
		}
	}
	return h
}

// holdersOf is who has the key on the node, or will have when it is up again.
func (n *Node) holdersOf(name string) holders {
	if n.server != nil {
		return holdersIn(n.server.Data(), name, n.clock())
	}
	return holdersIn(n.disk.data, name, n.clock())
}

// cameUpWith reports whether the server came up with the key as id's, who may be a reader.
func (n *Node) cameUpWith(name, id string) bool {
	if n.restored.Has(name, id) {
		return true
	}
	_, read := n.restored.Scores(sideKey("readers", name), time.UnixMilli(0))[id]
	return read
}

// excludes reports whether the two are not to hold at once.
func (t tenure) excludes(other tenure) bool { return !t.reader || !other.reader }

// checkReadersKept checks that a step has left other readers what they had, and that the key
// expires with the last of them. In a Cluster their times may be by the clock of another server, which had the key before.
func (n *Node) checkReadersKept(step []string, before, after holders) {
	if n.member != nil {
		return
	}
	for id, end := range before.readers {
		if id != step[1] && after.readers[id] < end {
			n.world.Judge.Condemn("a key is not taken away: on %s, %s of %s shortens what the reader %s had: %v, and %v before", n.Name, step[0], step[1], id, after, before)
		}
	}
	if len(after.readers) == 0 {
		return
	}
	if end := after.readers[step[1]]; end > before.readers[step[1]] && len(step) > 2 {
		if ttl, _ := strconv.ParseInt(step[2], 10, 64); end > n.clock().UnixMilli()+ttl {
			n.world.Judge.Condemn("a reader's time is its own: on %s, %s of %s for %d ms gives it %d", n.Name, step[0], step[1], ttl, end-n.clock().UnixMilli())
		}
	}
	if last := slices.Max(slices.Collect(maps.Values(after.readers))); after.expires != last {
		n.world.Judge.Condemn("readers' key expires with the last: on %s, after %s of %s it does so %d ms after %v", n.Name, step[0], step[1], after.expires-last, after)
	}
}
