package topology

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// Where one master cannot be asked, Admit says which, and has vouched for the others.
func TestClusterAdmitBesideADeadMaster(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, fixTTL)
		client := locktest.Open(t, c.config)
		c.Masters[2].Kill()
		for range 20 { // which masters there are is asked of any server, at random
			err := client.Admit(t.Context(), storm.Node)
			if err == nil || !strings.Contains(err.Error(), "the master of slot 16383: ") {
				t.Fatalf("got %v, want an error that tells the dead master", err)
			}
		}
		c.atOnce(t, client, []string{storm.NameAt(0), storm.NameAt(1)})
	})
}
