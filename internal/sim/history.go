package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"sync"
	"time"
)

// maxHistory bounds the events that are kept: the last ones.
const maxHistory = 1 << 13

// History is what happened, in order. It is safe for concurrent use.
type History struct {
	world *World

	mu     sync.Mutex // guards what follows; nothing is called while it is held
	events []event
	count  int
}

type event struct {
	at     time.Duration
	actor  string
	format string
	args   []any
}

// Add notes an event. args must not change afterwards: they are formatted when
// somebody wants to read.
func (h *History) Add(actor, format string, args ...any) {
	e := event{h.world.Now(), actor, format, args}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) < maxHistory {
		h.events = append(h.events, e)
	} else {
		h.events[h.count%maxHistory] = e
	}
	h.count++
}

// Count returns how many events there were.
func (h *History) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// Digest stands for what happened when, but for what is random by nature, such
// as holder ids.
func (h *History) Digest() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	total := uint64(0)
	for _, e := range h.events {
		sum := fnv.New64a()
		var at [8]byte
		binary.LittleEndian.PutUint64(at[:], uint64(e.at))
		sum.Write(at[:])
		io.WriteString(sum, e.actor)
		io.WriteString(sum, e.format)
		total += sum.Sum64() // in any order
	}
	return total
}

// Print writes the events, oldest first. Only the last ones are kept.
func (h *History) Print(out io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := max(0, h.count-maxHistory); i < h.count; i++ {
		e := h.events[i%maxHistory]
		fmt.Fprintf(out, "%14.6f  %-10s %s\n", e.at.Seconds(), e.actor, fmt.Sprintf(e.format, e.args...))
	}
}
