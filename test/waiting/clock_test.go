package waiting

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// Who waited before the clock of the server that keeps the queue was set back does not wait behind all who
// come in the time by which it was.
func TestQueueOfAClockSetBack(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, ClockShim: true})
		nodes := []*redistest.Server{server}
		c := locktest.Config(server.URL())
		holder, clients := locktest.Open(t, c), clientsOf(t, c, 2)
		inTurn(t, nodes, "0 1", func(try int) string {
			name := fmt.Sprintf("%s/%d", t.Name(), try)
			first := locktest.TryLock(t, holder, name)
			before := queueUp(t, nodes, clients[:1], name, 0)
			if err := server.StepClock(-time.Hour); err != nil {
				t.Fatal(err)
			}
			locktest.Await(t, "its heartbeat is by the new time", func() bool {
				heartbeats, _ := locktest.Do(t, server, "ZRANGE", node.SideKeys(name)[3], "0", "0", "WITHSCORES").([]any)
				if len(heartbeats) < 2 {
					return false
				}
				ms, err := strconv.ParseInt(heartbeats[1].(string), 10, 64)
				return err == nil && time.UnixMilli(ms).Before(locktest.ServerTime(t, server).Add(2*script.Patience))
			})
			outs := append(before, queueUp(t, nodes, clients[1:], name, 1)...)
			gate := &locktest.Turnstile{T: t}
			locktest.Unlock(t, first)
			passAll(t, gate, outs)
			awaitQueued(t, nodes, name, 0)
			return gate.Whole()
		})
	})
}
