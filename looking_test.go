package redlatch_test

import (
	"slices"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Who only looks leaves no key and changes none, on nodes that could be admitted as well: the
// first vote admits.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for name, c := range map[string]struct {
			fence redlatch.FenceMode
			used  bool
		}{
			"new nodes, no fence":          {fence: redlatch.FenceOff},
			"new nodes":                    {fence: redlatch.FenceOn},
			"scripts deleted and no fence": {fence: redlatch.FenceOff, used: true},
			"scripts deleted":              {fence: redlatch.FenceOn, used: true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				servers := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
				conf := withMaxTTL(fenced(redistest.URLs(servers)...), patience) // which nobody waits for
				conf.RestartFence = c.fence
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
				if id, _, err := client.Query(t.Context(), "x"); err != nil || id != "" {
					t.Errorf("query: %q, %v", id, err)
				}
				if _, err := client.Inspect(t.Context(), "x"); err != nil {
					t.Errorf("inspect: %v", err)
				}
				standing := redlatch.Admissible
				if c.fence == redlatch.FenceOn && !c.used {
					standing = redlatch.Waiting
				}
				for _, node := range examine(t, conf, "x") {
					if node.Standing != standing {
						t.Errorf("%s is %v because of %v, want %v", node.Node, node.Standing, node.Reason, standing)
					}
				}
				if after := contents(t, servers); !slices.Equal(after, before) {
					t.Errorf("there was\n%s\nand there is\n%s", without(before, after), without(after, before))
				}
				if standing == redlatch.Admissible {
					unlock(t, tryLock(t, client, "x"))
					await(t, "the nodes are admitted by the vote", func() bool {
						return !slices.ContainsFunc(examine(t, conf), func(node redlatch.NodeReport) bool { return node.Standing != redlatch.Admitted })
					})
				}
			})
		}
	})
}
