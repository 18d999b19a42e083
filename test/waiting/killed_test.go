package waiting

import (
	"sync"
	"syscall"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A holder that renewed its lock until it was killed: those who are queued have it when its TTL is over.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	clients := clientsOf(t, c, 2)
	var p *locktest.Child
	var outs []<-chan locktest.Outcome
	const tries = 20
	for try := 1; len(outs) == 0; try++ {
		p = locktest.StartChild(t, c, t.Name())
		if said := p.Says(t); said != "held" {
			t.Fatal(said)
		}
		given := locktest.Within(t, 2*locktest.Patience)
		for i, client := range clients {
			outs = append(outs, locktest.LockIn(given, client, t.Name()))
			locktest.Await(t, "it is queued, or has the lock", func() bool {
				tickets := ticketsOn(t, nodes, t.Name())
				return len(outs[0]) > 0 || tickets[0]+tickets[1]+tickets[2] == i+1
			})
		}
		if len(outs[0]) > 0 && try < tries { // a busy machine's child has not renewed it in time
			p.Process.Kill()
			for _, out := range outs {
				o := <-out
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				locktest.Unlock(t, o.Lock)
			}
			outs = nil
		}
	}
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, out := range outs { // on a busy machine the second may have it first
		all.Go(func() {
			o := <-out
			if o.Err != nil {
				t.Error(o.Err)
				return
			}
			locktest.Unlock(t, o.Lock)
		})
	}
	all.Wait()
}
