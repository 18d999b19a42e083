package etcd_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

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
// holder knows that its lock is over, and who tries is told the server's words and the remedy.
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
	locks := open(t, enginetest.Config, etcd.Cluster{Endpoints: c.Addrs(), Prefix: enginetest.Root(t)})
	held := enginetest.Lock(t, locks, "name")
	set()
	<-held.Context().Done()
	if _, err := locks.TryLock(t.Context(), "other"); !errors.Is(err, redlatch.ErrNoQuorum) || !errors.Is(err, rpctypes.ErrNoSpace) || !strings.Contains(err.Error(), "alarm") {
		t.Error(err)
	}
	alarm.Action = pb.AlarmRequest_DEACTIVATE
	set()
	next := enginetest.Lock(t, locks, "name")
	if next.Token() <= held.Token() {
		t.Errorf("the token %d after %d", next.Token(), held.Token())
	}
	enginetest.Unlock(t, next)
}
