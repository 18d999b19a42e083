package topology

import (
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// Never two holders and never a token backward, whatever befalls a master that Sentinels watch.
// It does not run beside other tests, whom it would take the processor from.
func TestSentinelStorm(t *testing.T) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) { storm.RunSentinels(t, binary, locktest.Open) })
}
