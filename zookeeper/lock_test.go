package zookeeper_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/zookeeper"
)

func TestOneHolder(t *testing.T)            { engine.OneHolder(t) }
func TestExclusion(t *testing.T)            { engine.Exclusion(t) }
func TestOrder(t *testing.T)                { engine.Order(t) }
func TestWakeUp(t *testing.T)               { engine.WakeUp(t) }
func TestExtendNeverShortens(t *testing.T)  { engine.ExtendNeverShortens(t) }
func TestRenewal(t *testing.T)              { engine.Renewal(t) }
func TestTakeover(t *testing.T)             { engine.Takeover(t) }
func TestCancel(t *testing.T)               { engine.Cancel(t) }
func TestMinHoldOutlastsClose(t *testing.T) { engine.MinHoldOutlastsClose(t) }
func TestCloseReleases(t *testing.T)        { engine.CloseReleases(t) }
func TestDetach(t *testing.T)               { engine.Detach(t) }
func TestDetachedEnds(t *testing.T)         { engine.DetachedEnds(t) }
func TestExtendedByID(t *testing.T)         { engine.ExtendedByID(t) }
func TestHolderIsExtendedByID(t *testing.T) { engine.HolderIsExtendedByID(t) }
func TestList(t *testing.T)                 { engine.List(t) }

// plant has a lock held by somebody who neither extends nor releases it, and whose session lives on.
func plant(t *testing.T, conn *zk.Conn, root, name string) (lease string) {
	t.Helper()
	place := root + "/lock:" + name
	lease = place + "/lease:planted"
	for path, data := range map[string]string{place + "/held": "", lease: strconv.FormatInt(enginetest.TTL.Milliseconds(), 10)} {
		if _, err := conn.Create(path, []byte(data), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	return lease
}

// A lease that nobody extends is taken over, whatever its session does, and not before it has been
// seen at one version for its TTL.
func TestTakeoverByVersion(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	wire := new(wire)
	ensemble.Dial = wire.dial
	client := open(t, enginetest.Config, ensemble)
	enginetest.Unlock(t, enginetest.Lock(t, client, "name"))
	conn := connect(t, e)
	lease := plant(t, conn, ensemble.Root, "name")
	extended := make(chan time.Time, 1)
	extend := func() { // once, when the client is about to take over
		wire.holdMulti.Store(nil)
		if _, err := conn.Set(lease, []byte(strconv.FormatInt(enginetest.TTL.Milliseconds(), 10)), -1); err != nil {
			t.Error(err)
		}
		extended <- time.Now()
	}
	wire.holdMulti.Store(&extend)
	got := <-enginetest.LockIn(t, client, "name")
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if after := got.At.Sub(<-extended); after < enginetest.TTL*9/10 {
		t.Errorf("it was taken over %v after an extension", after)
	}
	if _, err := conn.Sync(lease); err != nil { // its server may lag behind
		t.Error(err)
	}
	if found, _, err := conn.Exists(lease); found || err != nil {
		t.Errorf("the lease is there: %v, %v", found, err)
	}
	enginetest.Unlock(t, got.Lock)
}
