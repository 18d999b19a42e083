package observe

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Latest is the latest holder of this library that an observer has seen. The zero value is none.
type Latest struct {
	id string
	// token is its token, as far as that is known; seen is when it was seen last.
	token uint64
	seen  clock.Instant
}

// Is reports whether id is the latest holder's.
func (l *Latest) Is(id string) bool { return id == l.id }

// SeenAt notes that the latest holder still has the key.
func (l *Latest) SeenAt(now clock.Instant) { l.seen = now }

// After reports whether the latest holder came after the one that has the key now by id and token, and
// takes that one for the latest otherwise. A holder whose counter is gone was granted the lock more than
// maxTTL ago, before another that was seen since.
func (l *Latest) After(id string, token uint64, now clock.Instant, maxTTL time.Duration) bool {
	// rule: observer-not-back
	if id != l.id && token < l.token && now.Since(l.seen) <= maxTTL {
		return true
	}
	if id != l.id {
		l.id, l.token = id, 0
	}
	l.token, l.seen = max(token, l.token), now
	return false
}

// Holding returns the id of the holder that has the key on a quorum of nodes, "" if there is none, and the
// smallest counter of these nodes. decided is false while answers that are missing could change that.
func Holding(answers []vote.Answer) (id string, token uint64, decided bool) {
	need := quorum.Majority(len(answers))
	missing, most := len(answers), 0
	on := make(map[string]int)
	for _, a := range answers {
		switch a.Verdict {
		case vote.Held:
			on[a.Holder]++
			if missing--; on[a.Holder] > most {
				most, id = on[a.Holder], a.Holder
			}
		case vote.NotOurs:
			missing--
		}
	}
	if most < need {
		return "", 0, most+missing < need
	}
	for _, a := range answers {
		if a.Verdict == vote.Held && a.Holder == id && a.Counter > 0 && (token == 0 || a.Counter < token) {
			token = a.Counter
		}
	}
	return id, token, true
}
