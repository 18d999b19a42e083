package topology

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/storm"
)

// stalling is a Cluster's connection on which something happens while a client looks at the slot with a tag and admits it: before
// the admission or, if read is set, when the admission key was read for the second time.
type stalling struct {
	*redisconn.Cluster
	tag  string
	read bool
	// looks counts how often the slot was looked at. The first time is when the client connects.
	looks  *atomic.Int32
	happen func()
}

// openStalling returns a client that has such a connection.
func openStalling(t *testing.T, c redlatch.Config, tag string, read bool, happen func()) *redlatch.Client {
	t.Helper()
	return locktest.OpenIn(t, c, hook.Surroundings{Dial: func(string) (driver.Conn, error) {
		options, _, err := redisconn.Parse(c.Nodes[0])
		options.ConnectTimeout = locktest.Patience
		return stalling{redisconn.NewCluster(options), tag, read, new(atomic.Int32), happen}, err
	}})
}

func (c stalling) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	about := len(args) > 3 && strings.Contains(args[3], "{"+c.tag+"}:admitted:")
	if about && !c.read && len(args) > 4 && args[4] == script.Admit {
		c.happen()
	}
	reply, err := c.Cluster.Do(ctx, args...)
	if about && c.read && args[1] == script.Inspect.Text && c.looks.Add(1) == 2 {
		c.happen()
	}
	return reply, err
}

// A client stalls while it looks at a slot and admits it. Meanwhile the slot moves, somebody locks there, and
// the master that was looked at gets it back without the keys that it has by now. It had the slot since long,
// or got it with its admission key.
func TestClusterSlotIsAwayAmidItsAdmission(t *testing.T) {
	t.Parallel()
	for what, brought := range map[string]bool{"before it is admitted": false, "after its key was read": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				slotIsAwayAmidItsAdmission(t, binary, brought)
			})
		})
	}
}

func slotIsAwayAmidItsAdmission(t *testing.T, binary string, brought bool) {
	c := newHurtCluster(t, binary, 0, 2*fixTTL)
	holder := locktest.Open(t, c.config)
	c.admit(t, holder)
	name := storm.NameAt(0)
	move := func(to *redistest.Server) {
		must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
	}
	locktest.Unlock(t, locktest.TryLock(t, holder, name))
	at := c.Masters[0]
	if brought {
		// The key is written anew when the masters have been up for long enough for their clocks to differ.
		for begin := locktest.ServerTime(t, at); locktest.ServerTime(t, at).Sub(begin) < 3*time.Second; {
			locktest.Unlock(t, locktest.TryLock(t, holder, name))
		}
		at = c.Masters[1]
		move(at)
	} else {
		locktest.Do(t, at, "SCRIPT", "FLUSH") // so that the next client looks
	}

	var held *redlatch.Lock
	var failed error
	over := make(chan struct{})
	away := sync.OnceFunc(func() { // in a goroutine of the client, which must not end the test
		defer close(over)
		ctx := locktest.Within(t, 2*locktest.Patience)
		if failed = c.MoveSlot(ctx, storm.SlotOf(name), c.Masters[2], nil); failed != nil {
			return
		}
		for held == nil && ctx.Err() == nil {
			held, failed = holder.TryLock(ctx, name, redlatch.WithoutRenewal())
		}
		if held != nil {
			failed = c.GiveSlots(ctx, at, storm.SlotOf(name))
		}
	})
	late := openStalling(t, c.config, hashslot.TagOf(hashslot.Of(name)), brought, away)
	for done := false; !done; {
		lock, err := late.TryLock(t.Context(), name)
		select {
		case <-over:
			if failed != nil {
				t.Fatal(failed)
			}
			if err == nil && held.Err() == nil {
				t.Fatalf("%q has two holders: the first for another %v", lock.Name(), time.Until(held.Until()))
			}
			done = held.Err() != nil
		default:
			if err == nil {
				t.Fatal("the slot was not away")
			}
		}
	}
}
