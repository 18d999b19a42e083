package locking

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/locktest/conformance"
	"github.com/redlatch/redlatch/internal/redistest"
)

// stage is a conformance.Stage of real servers.
type stage struct {
	config redlatch.Config
	nodes  []*redistest.Server
}

func (s stage) Open(t *testing.T, c redlatch.Config) conformance.Client {
	t.Helper()
	config := s.config
	config.TTL, config.MaxTTL, config.MaxHold = 20*time.Second, 30*time.Second, c.MaxHold
	return locktest.Open(t, config)
}

func (s stage) Nodes() int { return len(s.nodes) }

func (s stage) Value(t *testing.T, i int, key string) string {
	t.Helper()
	return locktest.Value(t, s.nodes[i], key)
}

func (s stage) Left(t *testing.T, i int, key string) time.Duration {
	t.Helper()
	return locktest.Remaining(t, s.nodes[i], key)
}

func (s stage) Set(t *testing.T, i int, key, value string) {
	t.Helper()
	if value == "" {
		locktest.Do(t, s.nodes[i], "DEL", key)
		return
	}
	locktest.Do(t, s.nodes[i], "SET", key, value, "PX", "60000")
}

// The suite that the client in memory passes, too: one server and three of each kind.
func TestConformance(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			for _, test := range conformance.Tests() {
				t.Run(fmt.Sprintf("N=%d/%s", n, test.Name), func(t *testing.T) {
					t.Parallel()
					nodes := locktest.SharedOf(t, binary, n)
					test.Run(t, stage{locktest.Config(redistest.URLs(nodes)...), nodes})
				})
			}
		}
	})
}
