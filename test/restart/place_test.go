package restart

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server that takes the place of one that has granted a lock, under the same name, waits from its own
// start. If it was started before, that may be over, and then a second holder is possible: the page
// with what there is only a word for says so.
func TestServerInAnothersPlace(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/restarts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, risks, _ := strings.Cut(string(page), "## What there is only your word for")
	said := strings.Contains(risks, "| A server that takes the place of another ")
	for name, place := range map[string]func(*testing.T, *redistest.Server){
		"started then": locktest.KillAndRestart,
		"up for long":  func(*testing.T, *redistest.Server) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const maxTTL, wait = 6 * time.Second, 10 * time.Second
			nodes := redistest.Nodes(t, 4)
			away := redistest.NewProxy(t, nodes[2].Addr())
			away.BlackHole(redistest.Both, true)
			before := redlatch.Config{
				Nodes: []string{nodes[0].URL() + "#a", nodes[1].URL() + "#b", away.URL() + "#c"},
				TTL:   maxTTL, MaxTTL: maxTTL, NodeTimeout: 500 * time.Millisecond,
			}
			after := before
			after.Nodes = []string{nodes[0].URL() + "#a", nodes[3].URL() + "#b", nodes[2].URL() + "#c"}
			locktest.Await(t, "all have been up for the wait", func() bool {
				for _, n := range nodes {
					info, err := n.Info("server")
					if up, _ := strconv.Atoi(info["uptime_in_seconds"]); err != nil || time.Duration(up)*time.Second <= wait {
						return false
					}
				}
				return true
			})
			one, two := locktest.Open(t, before), locktest.Open(t, after)
			locktest.Await(t, "a try that was not too late", func() bool {
				lock, err := one.TryLock(t.Context(), "job", redlatch.WithoutRenewal())
				if err != nil {
					return false
				}
				place(t, nodes[3])
				second, err := two.TryLock(t.Context(), "job")
				late := lock.Err() != nil
				if err == nil {
					locktest.Unlock(t, second)
				}
				switch {
				case late:
				case err == nil && name == "started then":
					t.Fatal("a second holder, though the server waits from its start")
				case err == nil && !said:
					t.Error("a second holder, and docs/restarts.md does not say that it is possible")
				}
				_ = lock.Unlock(t.Context())
				return !late
			})
		})
	}
}
