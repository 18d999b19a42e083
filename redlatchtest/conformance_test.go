package redlatchtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest/conformance"
	"github.com/redlatch/redlatch/internal/memory"
)

// stage is a conformance.Stage of one node in memory.
type stage struct {
	first *Client
	node  *memory.Node
}

func newStage(t *testing.T) conformance.Stage {
	first := New(t, settings(redlatch.Config{}))
	return stage{first, first.server.node}
}

func settings(c redlatch.Config) redlatch.Config {
	c.TTL, c.NodeTimeout = 20*time.Second, time.Second
	return c
}

func (s stage) Open(t *testing.T, c redlatch.Config) conformance.Client {
	t.Helper()
	return s.first.Peer(settings(c))
}

func (stage) Nodes() int { return 1 }

func (s stage) Value(_ *testing.T, _ int, key string) string { return s.node.Keys()[key].Holder }

func (s stage) Left(_ *testing.T, _ int, key string) time.Duration { return s.node.Keys()[key].Left }

func (s stage) Set(_ *testing.T, _ int, key, value string) {
	s.node.Set(key, value, time.Minute)
}

// The client in memory passes the suite that the library passes on real servers, many at the same
// time.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds; the same in virtual time does not")
	}
	t.Parallel()
	for _, test := range conformance.Tests() {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			test.Run(t, newStage(t))
		})
	}
}

// It does so in virtual time.
func TestConformanceInVirtualTime(t *testing.T) {
	t.Parallel()
	for _, test := range conformance.Tests() {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test.Run(t, newStage(t)) })
		})
	}
}
