package sim

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
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

// Print writes the events, oldest first. Only the last ones are kept.
func (h *History) Print(out io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := max(0, h.count-maxHistory); i < h.count; i++ {
		e := h.events[i%maxHistory]
		fmt.Fprintf(out, "%14.9f  %-10s %s\n", e.at.Seconds(), e.actor, fmt.Sprintf(e.format, e.args...))
	}
}

// exchangeText is a command and its reply, for people to read.
type exchangeText struct {
	args, step []string
	reply      driver.Reply
	err        error
}

func (t exchangeText) String() string {
	name, step := "", t.step
	if len(t.args) > 3 && t.args[2] != "0" {
		name = t.args[3]
	}
	if len(step) == 0 {
		return "inspect"
	}
	if t.err != nil {
		return fmt.Sprintf("%s %q → %v", name, step, t.err)
	}
	switch t.reply.Kind {
	case driver.Int:
		return fmt.Sprintf("%s %q → %d", name, step, t.reply.Int)
	case driver.Array:
		return fmt.Sprintf("%s %q → %v", name, step, t.reply.Array)
	}
	return fmt.Sprintf("%s %q → %+v", name, step, t.reply)
}
