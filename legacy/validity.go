package legacy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
)

// validity says how long a lock lasts that is about to be written.
type validity struct {
	// value is the Unix time in seconds from which on others take the lock over.
	value int64
	// until is timeout after the start, up to a second before value. It is by this machine's own
	// clocks, which a step of the wall clock does not move.
	until clock.Instant
}

// validity returns the validity of a lock that is written now.
func (l *Locker) validity() validity {
	now := clock.System.Now()
	return validity{
		value: now.Mono.Unix() + int64(l.config.Timeout/time.Second) + 1,
		until: now.Add(l.config.Timeout),
	}
}

func (v validity) text() string { return strconv.FormatInt(v.value, 10) }

// over reports whether the lock counts as expired, by any of the clocks.
func (v validity) over() bool {
	return clock.System.Now().Reached(v.until) || time.Now().Unix() >= v.value
}

// sleepCheck bounds how late a lock is found lost after the machine slept, as timers sleep with it, or
// after its wall clock was stepped.
const sleepCheck = 250 * time.Millisecond

// untilLook returns when to look next whether a validity is over that is not yet.
func (v validity) untilLook() time.Duration {
	return min(clock.System.Now().Until(v.until), sleepCheck)
}

// expired reports whether a lock with this value may be taken over, because its second is past. A
// value that is no time never expires.
func expired(value string) bool {
	at, ok := parse(value)
	return ok && at < float64(time.Now().Unix())
}

// parse reads a Unix time. Some lockers write fractions of seconds. What else Go takes for a number may
// be an id, such as 4711_2 and 12e4.
func parse(value string) (at float64, ok bool) {
	value = strings.TrimSpace(value)
	at, err := strconv.ParseFloat(value, 64)
	return at, err == nil && strings.Trim(value, "+-.0123456789") == ""
}

// held returns the error for a lock that is held. Its value is all that is known of the holder.
func held(name, value string) error {
	at, ok := parse(value)
	if !ok {
		return fmt.Errorf("legacy: lock %q: %w: its value is no Unix time, %.40q, and is not taken over", name, redlatch.ErrHeld, value)
	}
	return fmt.Errorf("legacy: lock %q: %w until %s", name, redlatch.ErrHeld, time.Unix(int64(at), 0).Format(time.RFC3339))
}
