package storm

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// holding is one holder's time with a lock, by this process's monotonic clock: it was
// told that it has the lock before from, and at to it was still told so.
type holding struct {
	name     string
	token    uint64
	from, to time.Duration
}

func (h holding) String() string {
	return fmt.Sprintf("%q with token %d from %v to %v", h.name, h.token, h.from, h.to)
}

// holdings are all of a run.
type holdings struct {
	start time.Time

	mu   sync.Mutex // guards what follows
	all  []holding
	lost int // of the locks, before their holders were done
}

// keep works under the lock for a while, and records how long it was valid. It returns
// when the lock is lost or done is closed, too.
func (h *holdings) keep(lock *redlatch.Lock, work time.Duration, done <-chan struct{}) {
	held := holding{name: lock.Name(), token: lock.Token(), from: time.Since(h.start)}
	timer := time.NewTimer(work)
	defer timer.Stop()
	valid, lost := false, false
	for over := false; ; {
		now := time.Since(h.start) // before the lock is asked: it was valid then
		if lost = lock.Err() != nil; lost {
			break
		}
		held.to, valid = now, true
		if over {
			break
		}
		poll := time.NewTimer(2 * time.Millisecond)
		select {
		case <-timer.C:
			over = true
		case <-done:
			over = true
		case <-lock.Context().Done():
		case <-poll.C:
		}
		poll.Stop()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if valid { // else it was over before its holder knew of it, and may be earlier than what others recorded since
		h.all = append(h.all, held)
	}
	if lost {
		h.lost++
	}
}

func (h *holdings) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// judge returns what is wrong: times that overlap, and tokens that do not grow.
func (h *holdings) judge() (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	byName := make(map[string][]holding)
	for _, held := range h.all {
		byName[held.name] = append(byName[held.name], held)
	}
	for _, all := range byName {
		slices.SortFunc(all, func(a, b holding) int { return int(a.from - b.from) })
		longest, largest := all[0], all[0]
		for _, held := range all[1:] {
			if held.from < longest.to {
				wrong = append(wrong, fmt.Sprintf("two holders: %v, and %v", longest, held))
			}
			if held.token <= largest.token {
				wrong = append(wrong, fmt.Sprintf("a token does not grow: %v, and then %v", largest, held))
			}
			if held.to > longest.to {
				longest = held
			}
			if held.token > largest.token {
				largest = held
			}
		}
	}
	return wrong
}
