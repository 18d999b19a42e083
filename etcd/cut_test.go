package etcd_test

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
)

// What the others would hear of a member is lost, with the holder on it, who reaches no other: the
// member still hears its leader, and has it renew the holder's etcd lease. The holder knows before
// the next one has the lock.
func TestMemberIsCutOff(t *testing.T) {
	c := own(t)
	for _, leads := range []bool{false, true, false} {
		prefix := enginetest.Root(t)
		leader, followers := c.Leader()
		cut, rest := followers[0], []string{leader.Addr(), followers[1].Addr()}
		if leads {
			cut, rest = leader, []string{followers[0].Addr(), followers[1].Addr()}
		}
		holder := open(t, enginetest.Config, etcd.Cluster{Endpoints: []string{cut.Addr()}, Prefix: prefix})
		other := open(t, enginetest.Config, etcd.Cluster{Endpoints: rest, Prefix: prefix})
		held := enginetest.Lock(t, holder, "name")
		out := enginetest.LockIn(t, other, "name")
		lost := make(chan time.Time, 1)
		ctx := held.Context()
		go func() {
			<-ctx.Done()
			lost <- time.Now()
		}()
		start := time.Now()
		cut.Mute(true)
		select {
		case got := <-out:
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			knew := <-lost
			t.Logf("leader %v: the holder knew after %v, the next had it after %v", leads, knew.Sub(start), got.At.Sub(start))
			if knew.After(got.At) {
				t.Errorf("the next had it %v before the holder knew", knew.Sub(got.At))
			}
			if got.Lock.Token() <= held.Token() {
				t.Errorf("the token %d after %d", got.Lock.Token(), held.Token())
			}
			enginetest.Unlock(t, got.Lock)
		case <-time.After(enginetest.Patience):
			t.Fatalf("leader %v: nobody else has it", leads)
		}
		cut.Mute(false)
		holder.Close()
		other.Close()
		c.AwaitServing()
	}
}
