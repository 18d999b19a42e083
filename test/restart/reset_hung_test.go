package restart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A reset that ends while other nodes hang says that it waited for them, and not for the node, which answers.
func TestResetWhileOthersHang(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	c := locktest.Config(servers[0].URL(), servers[1].URL(), servers[2].URL())
	c.NodeTimeout = 500 * time.Millisecond // asking the others takes five times this
	client := locktest.Open(t, c)
	if err := client.Reset(t.Context(), c.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers[1:] {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Resume() })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := client.Reset(ctx, c.Nodes[0]); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "other nodes") {
		t.Errorf("got %v, want one that names the other nodes", err)
	}
	if err := client.Reset(t.Context(), c.Nodes[0]); err != nil {
		t.Errorf("with time enough: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- client.Reset(t.Context(), c.Nodes[0]) }()
	time.Sleep(200 * time.Millisecond) // until it asks them
	client.Close()
	if err := <-ended; !errors.Is(err, redlatch.ErrClosed) || errors.Is(err, context.Canceled) || strings.Count(err.Error(), redlatch.ErrClosed.Error()) != 1 {
		t.Errorf("that is closed meanwhile: %v", err)
	}
}
