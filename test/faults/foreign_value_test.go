package faults

import (
	"context"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// A key with a lock's name has another program's large value. Who looks at it is told its beginning;
// otherwise each look would keep the answers on the connection waiting by which the client's locks are
// renewed, and break it where the value is larger than a connection takes for a reply.
func TestLooksAtALargeForeignValue(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := locktest.Open(t, locktest.Config(server.URL()))
	lock := locktest.TryLock(t, client, "beside")
	const size = 2 << 20
	for _, key := range []string{t.Name(), locktest.SlotKey(t.Name(), 0)} {
		locktest.Do(t, server, "SET", key, strings.Repeat("x", size))
	}
	before := locktest.Output(t, server)
	theirs := strings.Repeat("x", 1024)

	awaitSight(t, observe(t, client), "a foreign holder", func(s sight) bool { return s.err == nil && s.holder.ID == theirs })
	permits := follow(t, func(ctx context.Context, seen chan<- []redlatch.Permit) {
		for held := range client.ObservePermits(ctx, t.Name()) {
			seen <- held
		}
	})
	awaitSight(t, permits, "a foreign permit", func(held []redlatch.Permit) bool { return len(held) == 1 && held[0].Holder.ID == theirs })
	if id, _, err := oneshot.New(client).Query(t.Context(), t.Name()); id != theirs || err != nil {
		t.Errorf("queried: %.20q, %v", id, err)
	}
	locktest.Extend(t, lock, locktest.TTL)
	if n := locktest.Output(t, server) - before; n >= size {
		t.Errorf("the server has sent %d bytes", n)
	}
}
