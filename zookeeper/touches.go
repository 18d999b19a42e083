package zookeeper

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// touch is a sign of life of this client: the leader counts the session from sent, or later, once
// the time known has come.
type touch struct{ sent, known clock.Instant }

// touches are the last of them, oldest first. A server reports them to the leader some time after
// it has answered, and what the leader does not know of does not keep the session alive.
type touches struct {
	last []touch
	// lasts is how long after the last touch the session is kept.
	lasts time.Duration
}

// maxTouches bounds how many are kept: more than are sent before the oldest one that may matter is
// known.
const maxTouches = 2 * heartbeats

func (t *touches) add(one touch, lasts time.Duration) {
	t.lasts = lasts
	if len(t.last) == maxTouches {
		t.last = append(t.last[:0], t.last[1:]...)
	}
	t.last = append(t.last, one)
}

// latest returns when the leader last heard of the session, as far as that is known at now.
func (t *touches) latest(now clock.Instant) clock.Instant {
	for i := len(t.last) - 1; i >= 0; i-- {
		if now.Reached(t.last[i].known) {
			return t.last[i].sent
		}
	}
	return clock.Instant{}
}
