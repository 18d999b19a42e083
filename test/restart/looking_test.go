package restart

import (
	"slices"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Who only looks leaves no key and changes none, on nodes that could be admitted as well: the
// first vote admits.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for name, c := range map[string]struct {
			quarantine bool
			used       bool
		}{
			"new nodes, no quarantine":          {quarantine: false},
			"new nodes":                         {quarantine: true},
			"scripts deleted and no quarantine": {quarantine: false, used: true},
			"scripts deleted":                   {quarantine: true, used: true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
				conf := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(servers)...), locktest.Patience) // which nobody waits for
				conf.NoQuarantine = !c.quarantine
				if c.used {
					client := locktest.Open(t, conf)
					locktest.Vouch(t, client, "n0", "n1", "n2")
					locktest.Unlock(t, locktest.TryLock(t, client, "x"))
					if err := client.Close(); err != nil {
						t.Fatal(err)
					}
					for _, s := range servers {
						locktest.Do(t, s, "SCRIPT", "FLUSH")
					}
				}
				before := contents(t, servers)
				client, err := redlatch.Open(conf)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { client.Close() })
				looks(t, client, "x")
				want := doctor.StatusAdmissible
				if c.quarantine && !c.used {
					want = doctor.StatusWaiting
				}
				for _, node := range locktest.Examine(t, conf, "x") {
					if node.Status != want {
						t.Errorf("%s is %v because of %v, want %v", node.Node, node.Status, node.Reason, want)
					}
				}
				if after := contents(t, servers); !slices.Equal(after, before) {
					t.Errorf("there was\n%s\nand there is\n%s", without(before, after), without(after, before))
				}
				if want == doctor.StatusAdmissible {
					locktest.Unlock(t, locktest.TryLock(t, client, "x"))
					locktest.Await(t, "the nodes are admitted by the vote", func() bool {
						return !slices.ContainsFunc(locktest.Examine(t, conf), func(node doctor.Report) bool { return node.Status != doctor.StatusAdmitted })
					})
				}
			})
		}
	})
}
