package waiting

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// A process with many callers lets others in between, and no caller is
// overtaken by one of its own process; also where the arbiter answers
// the process late, and where each holds for longer than what is known of the queue is fresh.
func TestProcessWithManyCallersIsFair(t *testing.T) {
	t.Parallel()
	for _, c := range []manyCallers{
		{nodes: 1, callers: 40},
		{nodes: 3, callers: 40},
		{nodes: 3, callers: 40, late: 20 * time.Millisecond},
		{nodes: 1, callers: 12, hold: 1100 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("N=%d, %v late, held for %v", c.nodes, c.late, c.hold), func(t *testing.T) {
			t.Parallel()
			const tries = 20
			for try := 1; ; try++ {
				before, late := c.play(t)
				// One acquires and gives it to eight more; of many, a few more where the machine is so
				// slow that who is woken up loses its turn.
				if before >= 1 && before <= max(9, c.callers/2) {
					return
				}
				if late <= script.Grace/4 || try == tries {
					t.Fatalf("%d of the %d who came before went first, where the machine was late by %v", before, c.callers, late)
				}
			}
		})
	}
}

// manyCallers of one process are followed by one of another.
type manyCallers struct {
	nodes, callers int
	late           time.Duration // answers of the arbiter
	hold           time.Duration // of each after the eighth
}

// play returns how many of them went first, and how late the machine was meanwhile.
func (m manyCallers) play(t *testing.T) (before int, late time.Duration) {
	nodes := redistest.Nodes(t, m.nodes)
	proxies, behind := make([]*redistest.Proxy, m.nodes), make([]string, m.nodes)
	for i, s := range nodes {
		proxies[i] = redistest.NewProxy(t, s.Addr())
		behind[i] = proxies[i].URL()
	}
	near := locktest.Config(redistest.URLs(nodes)...)
	far := near
	far.Nodes = locktest.Config(behind...).Nodes // under the same names
	first, many, few := locktest.TryLock(t, locktest.Open(t, near), "x"), locktest.Open(t, far), locktest.Open(t, near)
	gate := &locktest.Turnstile{T: t}
	given := locktest.Within(t, 2*locktest.Patience) // the first also waits for all others to come
	var group sync.WaitGroup
	enter := func(client *redlatch.Client, who string) {
		report, waits := locktest.WhenWaiting(nil)
		out := locktest.LockIn(given, client, "x", report)
		<-waits
		group.Go(func() {
			o := <-out
			if o.Err != nil {
				t.Error(o.Err)
				return
			}
			gate.Enter(o.Lock, who)
			if gate.Passed() > 8 {
				time.Sleep(m.hold)
			}
			gate.Leave(o.Lock)
			locktest.Unlock(t, o.Lock)
		})
	}
	for range m.callers {
		enter(many, "many")
	}
	awaitQueued(t, nodes, "x", 1)
	enter(few, "few")
	arbiter := awaitQueued(t, nodes, "x", 2)
	proxies[arbiter].Delay(redistest.Replies, m.late, 0)
	lateness := locktest.WatchLateness(t, nodes...)
	locktest.Unlock(t, first)
	group.Wait()
	return strings.Count(strings.Split(gate.Whole(), "few")[0], "many"), lateness.Take()
}
