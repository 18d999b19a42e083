package topology

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// Never two holders and never a token backward, whatever befalls the Cluster's masters.
// It does not run beside other tests, whom it would take the processor from.
func TestClusterStorm(t *testing.T) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		storm.Run(t, binary, func(t *testing.T, c redlatch.Config, masters []*redistest.Server) *redlatch.Client {
			t.Helper()
			c.Nodes = []string{clusterURL(masters) + "#" + storm.Node}
			return locktest.Open(t, c)
		})
	})
}
