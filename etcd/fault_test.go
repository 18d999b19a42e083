package etcd_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
)

func TestHolderCrashes(t *testing.T)        { engine.HolderCrashes(t) }
func TestHolderIsPaused(t *testing.T)       { engine.HolderIsPaused(t) }
func TestFirstWaiterCrashes(t *testing.T)   { engine.FirstWaiterCrashes(t) }
func TestHolderAndWaiterCrash(t *testing.T) { engine.HolderAndWaiterCrash(t) }
func TestLostReplies(t *testing.T)          { engine.LostReplies(t) }
func TestLeaderDies(t *testing.T)           { engine.LeaderDies(t) }
func TestAllRestart(t *testing.T)           { engine.AllRestart(t) }

func TestServerTrouble(t *testing.T) {
	c := own(t)
	t.Run("no space", func(t *testing.T) { noSpace(t, c) })
	engine.ServerTrouble(t, c)
}

// noSpace has the cluster take no writes, as when a member's database has reached its quota: the
// holder knows that its lock is over, and can release it before that; who waits can leave; and who tries is told the server's
// words and the remedy, also by a client that was opened since.
func noSpace(t *testing.T, c *ensembletest.Etcd) {
	client := dial(t, c.Addrs()...)
	defer client.Close()
	status, err := client.Status(t.Context(), c.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	set := func() {
		t.Helper()
		if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(context.WithoutCancel(t.Context()), alarm); err != nil {
			t.Fatal(err)
		}
	}
	cluster := etcd.Cluster{Endpoints: c.Addrs(), Prefix: enginetest.Root(t)}
	locks := open(t, enginetest.Config, cluster)
	held, released := enginetest.Lock(t, locks, "name"), enginetest.Lock(t, open(t, enginetest.Patient, cluster), "released")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go open(t, enginetest.Patient, cluster).Lock(ctx, "name")
	enginetest.Await(t, "a client waits", func() bool {
		r, err := client.Get(t.Context(), cluster.Prefix+"/lock/name/wait/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && r.Count == 1
	})
	set()
	enginetest.Unlock(t, released)
	cancel()
	enginetest.Await(t, "the lock that was released is free, and the waiter has left", func() bool {
		r, err := client.Get(t.Context(), cluster.Prefix+"/lock/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err == nil && r.Count == 2 // those of the lock that is held
	})
	<-held.Context().Done()
	for who, locks := range map[string]*redlatch.Client{"who was there": locks, "who comes": open(t, enginetest.Config, cluster)} {
		if _, err := locks.TryLock(t.Context(), "other"); !errors.Is(err, redlatch.ErrNoQuorum) || !errors.Is(err, rpctypes.ErrNoSpace) || !strings.Contains(err.Error(), "alarm") {
			t.Errorf("%s: %v", who, err)
		}
	}
	alarm.Action = pb.AlarmRequest_DEACTIVATE
	set()
	next := enginetest.Lock(t, locks, "name")
	if next.Token() <= held.Token() {
		t.Errorf("the token %d after %d", next.Token(), held.Token())
	}
	enginetest.Unlock(t, next)
}

// Somebody revokes the etcd lease of a client: its lock is free at once, and it finds that out by its next extension. It makes
// another etcd lease and locks again.
func TestLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	c := common(t)
	client := dial(t, c.Addrs()...)
	t.Cleanup(func() { client.Close() })
	cluster := etcd.Cluster{Endpoints: c.Addrs(), Prefix: enginetest.Root(t)}
	locks := open(t, enginetest.Patient, cluster)
	held := enginetest.Lock(t, locks, "name")
	r, err := client.Get(t.Context(), cluster.Prefix+"/lock/", clientv3.WithPrefix(), clientv3.WithLimit(1))
	if err != nil || len(r.Kvs) == 0 {
		t.Fatalf("%v, %v", r, err)
	}
	if _, err := client.Revoke(t.Context(), clientv3.LeaseID(r.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	next := enginetest.Lock(t, open(t, enginetest.Patient, cluster), "name")
	if next.Token() <= held.Token() {
		t.Errorf("the token %d after %d", next.Token(), held.Token())
	}
	enginetest.Await(t, "the holder is told", func() bool { return errors.Is(held.Extend(t.Context(), enginetest.Patient.TTL), redlatch.ErrLost) })
	enginetest.Unlock(t, next)
	enginetest.Unlock(t, enginetest.Lock(t, locks, "name"))
}
