package quorum

import (
	"testing"
	"time"
)

// A validity loses 1 % of the TTL, for clocks that run at different rates, and 2 ms.
func TestDrift(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Second: 102 * time.Millisecond, 100 * time.Millisecond: 3 * time.Millisecond, time.Hour: 36*time.Second + 2*time.Millisecond,
	} {
		if got := Drift(ttl); got != want {
			t.Errorf("%v loses %v, want %v", ttl, got, want)
		}
	}
}
