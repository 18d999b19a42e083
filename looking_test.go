package redlatch_test

import (
	"slices"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// Who only looks leaves no key and changes none, on nodes that could be admitted as well: the
// first vote admits.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
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
				conf := withMaxTTL(withQuarantine(redistest.URLs(servers)...), patience) // which nobody waits for
				conf.NoQuarantine = !c.quarantine
				if c.used {
					client := open(t, conf)
					vouch(t, client, "n0", "n1", "n2")
					unlock(t, tryLock(t, client, "x"))
					if err := client.Close(); err != nil {
						t.Fatal(err)
					}
					for _, s := range servers {
						do(t, s, "SCRIPT", "FLUSH")
					}
				}
				before := contents(t, servers)
				client, err := redlatch.Open(conf)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { client.Close() })
				if id, _, err := oneshot.New(client).Query(t.Context(), "x"); err != nil || id != "" {
					t.Errorf("query: %q, %v", id, err)
				}
				if _, err := oneshot.New(client).Inspect(t.Context(), "x"); err != nil {
					t.Errorf("inspect: %v", err)
				}
				standing := doctor.StatusAdmissible
				if c.quarantine && !c.used {
					standing = doctor.StatusWaiting
				}
				for _, node := range examine(t, conf, "x") {
					if node.Status != standing {
						t.Errorf("%s is %v because of %v, want %v", node.Node, node.Status, node.Reason, standing)
					}
				}
				if after := contents(t, servers); !slices.Equal(after, before) {
					t.Errorf("there was\n%s\nand there is\n%s", without(before, after), without(after, before))
				}
				if standing == doctor.StatusAdmissible {
					unlock(t, tryLock(t, client, "x"))
					await(t, "the nodes are admitted by the vote", func() bool {
						return !slices.ContainsFunc(examine(t, conf), func(node doctor.Report) bool { return node.Status != doctor.StatusAdmitted })
					})
				}
			})
		}
	})
}
