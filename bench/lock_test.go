package bench

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// TestPairLocks pins that what is measured is a lock: it is not given while
// another holds the name on a quorum of nodes, it is given when that is over,
// and it is gone afterwards.
func TestPairLocks(t *testing.T) {
	for _, c := range contestants {
		t.Run(c.name, func(t *testing.T) {
			on := servers(t, c.nodes)
			l, err := c.open(addresses(on))
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			key := c.key(t.Name())
			conns := make([]*redistest.Conn, len(on))
			for i, s := range on {
				if conns[i], err = redistest.Dial(t.Context(), s.Addr()); err != nil {
					t.Fatal(err)
				}
				defer conns[i].Close()
			}

			majority := conns[:len(conns)/2+1]
			for _, conn := range majority {
				if _, err := conn.Do("SET", key, "another"); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := l.pair(ctx, t.Name()); err == nil {
				t.Fatal("it locked what another holds")
			}
			for _, conn := range majority {
				if held, err := conn.Do("GET", key); err != nil || held != "another" {
					t.Fatalf("after a lock that failed, the other's record is %v, %v", held, err)
				}
				if _, err := conn.Do("DEL", key); err != nil {
					t.Fatal(err)
				}
			}

			if err := l.pair(t.Context(), t.Name()); err != nil {
				t.Fatalf("it does not lock what is free: %v", err)
			}
			// Nodes that were not waited for may still be at it.
			for _, conn := range conns {
				awaitGone(t, conn, key)
			}
		})
	}
}

func awaitGone(t *testing.T, conn *redistest.Conn, key string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; {
		n, err := conn.Do("EXISTS", key)
		switch {
		case err != nil:
			t.Fatal(err)
		case n == int64(0):
			return
		case time.Now().After(end):
			t.Fatalf("the record is still there")
		}
	}
}
