package redisconn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A command that watches follows its slot to another master. Who is told there that the key is
// watched is told of its change: that master does not watch what another sent on to it.
func TestWatchFollowsTheSlot(t *testing.T) {
	t.Parallel()
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cluster := redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Binary: binary})
			c := redisconn.NewCluster(redisconn.Options{Network: "tcp", Address: cluster.Masters[0].Addr(), Cluster: true, ConnectTimeout: 20 * time.Second})
			defer c.Close()
			changed := make(chan string, 100)
			c.OnChange(func(key string) { changed <- key })
			if _, err := c.Do(ctx, "SET", "k", "v"); err != nil {
				t.Fatal(err)
			}
			slot := int(hashslot.Of("k"))
			from, err := cluster.Owner(slot)
			if err != nil {
				t.Fatal(err)
			}
			to := cluster.Masters[0]
			if to == from {
				to = cluster.Masters[1]
			}
			if _, watched, err := c.DoWatching(ctx, "GET", "k"); err != nil || !watched {
				t.Fatalf("watched: %t, %v", watched, err)
			}
			if err := cluster.MoveSlot(ctx, slot, to, nil); err != nil {
				t.Fatal(err)
			}
			awaitChange(t, ctx, changed)
			asked := 0
			for watched := false; !watched; asked++ {
				reply, now, err := c.DoWatching(ctx, "GET", "k")
				if err != nil || reply.Text != "v" {
					t.Fatalf("at the new master: %+v, %v", reply, err)
				}
				watched = now
			}
			t.Logf("watched after %d commands", asked)
			if _, err := to.Do("DEL", "k"); err != nil {
				t.Fatal(err)
			}
			awaitChange(t, ctx, changed)
		})
	}
}

func awaitChange(t *testing.T, ctx context.Context, changed <-chan string) {
	t.Helper()
	select {
	case key := <-changed:
		if key != "k" {
			t.Errorf("%q has changed", key)
		}
	case <-ctx.Done():
		t.Fatal("a change is not told")
	}
}

// What a Cluster that cannot be reached is asked to watch was not sent.
func TestWatchWhereNobodyIs(t *testing.T) {
	t.Parallel()
	c := redisconn.NewCluster(redisconn.Options{Network: "tcp", Address: "127.0.0.1:1", Cluster: true, ConnectTimeout: time.Second})
	defer c.Close()
	if reply, watched, err := c.DoWatching(t.Context(), "GET", "k"); !errors.Is(err, driver.ErrNotSent) || watched || reply.Kind != driver.Null {
		t.Errorf("%v, watched: %t, %v", reply, watched, err)
	}
}
