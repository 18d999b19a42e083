package etcd_test

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What the others would hear of a member is lost, with the holder on it, who reaches no other: the
// member still hears its leader, and has it renew the holder's etcd lease. The holder knows before
// the next one has the lock.
func TestMemberIsCutOff(t *testing.T) {
	c := own(t)
	for _, leads := range []bool{false, true, false} {
		prefix := prefixOf(t)
		leader, followers := c.leader(t)
		cut, rest := followers[0], []string{leader.addr(), followers[1].addr()}
		if leads {
			cut, rest = leader, []string{followers[0].addr(), followers[1].addr()}
		}
		holder := open(t, config, etcd.Cluster{Endpoints: []string{cut.addr()}, Prefix: prefix})
		other := open(t, config, etcd.Cluster{Endpoints: rest, Prefix: prefix})
		held := lock(t, holder, "name")
		out := lockIn(t, other, "name")
		lost := make(chan time.Time, 1)
		ctx := held.Context()
		go func() {
			<-ctx.Done()
			lost <- time.Now()
		}()
		start := time.Now()
		cut.link.BlackHole(redistest.Both, true)
		select {
		case got := <-out:
			if got.err != nil {
				t.Fatal(got.err)
			}
			knew := <-lost
			t.Logf("leader %v: the holder knew after %v, the next had it after %v", leads, knew.Sub(start), got.at.Sub(start))
			if knew.After(got.at) {
				t.Errorf("the next had it %v before the holder knew", knew.Sub(got.at))
			}
			if got.lock.Token() <= held.Token() {
				t.Errorf("the token %d after %d", got.lock.Token(), held.Token())
			}
			unlock(t, got.lock)
		case <-time.After(patience):
			t.Fatalf("leader %v: nobody else has it", leads)
		}
		cut.link.BlackHole(redistest.Both, false)
		holder.Close()
		other.Close()
		c.awaitServing()
	}
}
