package ensemble

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// MaxTTL, by which a session lasts, defaults to TTL, and TTL to ten seconds.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ttl, maxTTL, want time.Duration }{
		{0, 0, 10 * time.Second}, {3 * time.Second, 0, 3 * time.Second}, {3 * time.Second, time.Minute, time.Minute}, {0, time.Minute, time.Minute},
	} {
		got, err := Settings(redlatch.Config{TTL: c.ttl, MaxTTL: c.maxTTL}, "", "", "")
		if err != nil || got.MaxTTL != c.want || got.TTL != c.ttl || got.NodeTimeout != time.Second {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
}
