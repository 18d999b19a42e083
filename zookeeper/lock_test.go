package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
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
func TestHolderIsReleasedByID(t *testing.T) { engine.HolderIsReleasedByID(t) }
func TestList(t *testing.T)                 { engine.List(t) }

// plant has a lock held by somebody who neither extends nor releases it, and whose session lives on.
func plant(t *testing.T, conn *zk.Conn, root, name string) (lease string) {
	t.Helper()
	place := root + "/lock:" + name
	lease = place + "/lease:planted"
	hold(t, conn, place+"/held", lease, enginetest.TTL)
	return lease
}

// hold makes the nodes of a lock that is held, in one transaction with what comes before.
func hold(t *testing.T, conn *zk.Conn, held, lease string, ttl time.Duration, before ...any) {
	t.Helper()
	create := func(path, data string) *zk.CreateRequest {
		return &zk.CreateRequest{Path: path, Data: []byte(data), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral}
	}
	if _, err := conn.Multi(append(before, create(held, ""), create(lease, strconv.FormatInt(ttl.Milliseconds(), 10)))...); err != nil {
		t.Fatal(err)
	}
}

// Nodes that look like a lock's own, and that this library does not leave so, are no holder's: calls say
// what is there, and change nothing.
func TestNodesOfOthers(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	client, conn := open(t, enginetest.Config, ensemble), connect(t, e)
	for name, nodes := range map[string][]string{
		"no lease": {"held"}, "no holder": {"lease:theirs"}, "two leases": {"held", "lease:a", "lease:b"},
	} {
		enginetest.Unlock(t, enginetest.Lock(t, client, name))
		place := ensemble.Root + "/lock:" + url.QueryEscape(name)
		for _, node := range nodes {
			if _, err := conn.Create(place+"/"+node, []byte("1000"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
		}
		enginetest.Await(t, name+": a lock is refused", func() bool {
			lock, err := client.Lock(enginetest.Within(t, 2*enginetest.TTL), name)
			if err == nil { // the client's server has not heard of the nodes yet
				enginetest.Unlock(t, lock)
				return false
			}
			if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), place) {
				t.Fatalf("%s: %v, want ErrRefused with %s", name, err, place)
			}
			return true
		})
		enginetest.Await(t, name+": nothing else is there", func() bool {
			left, _, err := conn.Children(place)
			return err == nil && len(left) == len(nodes)
		})
	}
}

// Somebody deletes a part of a lock while another waits for it: who waits is told, and leaves no place in the queue.
func TestPartIsDeleted(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	enginetest.Lock(t, open(t, enginetest.Patient, ensemble), "name")
	out := enginetest.LockIn(t, open(t, enginetest.Patient, ensemble), "name")
	conn, place := connect(t, e), ensemble.Root+"/lock:name"
	if err := conn.Delete(place+"/held", -1); err != nil {
		t.Fatal(err)
	}
	if got := <-out; !errors.Is(got.Err, redlatch.ErrRefused) || !strings.Contains(got.Err.Error(), place) {
		t.Error(got.Err)
	}
	enginetest.Await(t, "only the lease is left", func() bool {
		if _, err := conn.Sync(place); err != nil {
			t.Fatal(err)
		}
		left, _, err := conn.Children(place)
		return err == nil && len(left) == 1
	})
}

// The end of a detached lock is asked for once where the servers refuse it, or a part of the lock is missing.
func TestEndOfDetachedIsRefused(t *testing.T) { // alone, because it looks at what the process does
	e := common(t)
	conn := connect(t, e)
	for name, harm := range map[string]func(place string) error{
		"it may not delete": func(place string) error {
			_, err := conn.SetACL(place, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
			return err
		},
		"a part is deleted": func(place string) error { return conn.Delete(place+"/held", -1) },
	} {
		t.Run(name, func(t *testing.T) {
			ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
			lock := enginetest.Lock(t, open(t, enginetest.Config, ensemble), "name")
			if err := harm(ensemble.Root + "/lock:name"); err != nil {
				t.Fatal(err)
			}
			if _, err := lock.Detach(); err != nil {
				t.Fatal(err)
			}
			asks(t, true, "ensemble.Expiry")
			asks(t, false, "ensemble.Expiry")
		})
	}
}

// Servers that refuse a release leave the lock to those who watch it for its TTL, once they may take it, and to others
// when the client that held it is closed.
func TestReleaseIsRefused(t *testing.T) {
	t.Parallel()
	e := common(t)
	conn := connect(t, e)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	holder := open(t, enginetest.Config, ensemble)
	waited, tried := enginetest.Lock(t, holder, "waited"), enginetest.Lock(t, holder, "tried")
	permit := func(permissions int32) {
		t.Helper()
		for _, name := range []string{"waited", "tried"} {
			if _, err := conn.SetACL(ensemble.Root+"/lock:"+name, zk.WorldACL(permissions), -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	permit(zk.PermRead | zk.PermCreate | zk.PermAdmin)
	for _, lock := range []*redlatch.Lock{waited, tried} {
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrRefused) || !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("%s: %v", lock.Name(), err)
		}
	}
	permit(zk.PermAll)
	enginetest.Unlock(t, enginetest.Lock(t, open(t, enginetest.Config, ensemble), "waited")) // after a TTL
	if _, err := locktest.TryInTime(t, open(t, enginetest.Config, ensemble), "tried"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("while the client lives: %v", err)
	}
	holder.Close()
	next, err := locktest.TryInTime(t, open(t, enginetest.Config, ensemble), "tried")
	if err != nil {
		t.Fatal("after its Close: ", err)
	}
	enginetest.Unlock(t, next)
}

// asks waits until a goroutine is, or none is, in what the text names.
func asks(t *testing.T, want bool, what string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	enginetest.Await(t, fmt.Sprintf("%s: %v", what, want), func() bool {
		return want == strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), what)
	})
}

// A waiter whose request for a place was executed twice leaves both.
func TestBothPlacesAreLeft(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	client := open(t, enginetest.Patient, ensemble)
	held := enginetest.Lock(t, client, "name")
	other := open(t, enginetest.Patient, ensemble)
	ctx, cancel := context.WithCancel(t.Context())
	out := locktest.LockIn(ctx, other, "name")
	conn, place := connect(t, e), ensemble.Root+"/lock:name"
	places := func() (places []string) {
		if _, err := conn.Sync(place); err != nil {
			t.Fatal(err)
		}
		children, _, err := conn.Children(place)
		if err != nil {
			t.Fatal(err)
		}
		for _, child := range children {
			if strings.HasPrefix(child, "wait:") {
				places = append(places, child)
			}
		}
		return places
	}
	enginetest.Await(t, "the other waits", func() bool { return len(places()) == 1 })
	waiter := places()[0]
	waiter = waiter[:strings.LastIndexByte(waiter, ':')+1]
	if _, err := conn.Create(place+"/"+waiter, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if o := <-out; !errors.Is(o.Err, context.Canceled) {
		t.Error(o.Err)
	}
	enginetest.Await(t, "it has left", func() bool { return len(places()) == 0 })
	enginetest.Unlock(t, held)
}

// A waiter whose lock somebody has deleted, with all places in its queue, has none to leave, and asks for nothing any more.
func TestNoPlaceIsLeft(t *testing.T) { // alone, because it looks at what the process does
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	enginetest.Lock(t, open(t, enginetest.Patient, ensemble), "name")
	out := enginetest.LockIn(t, open(t, enginetest.Patient, ensemble), "name")
	conn := connect(t, e)
	enginetest.Await(t, "all is deleted at once", func() bool {
		if _, err := conn.Sync(ensemble.Root); err != nil {
			t.Fatal(err)
		}
		var all []any
		for _, path := range []string{ensemble.Root + "/lock:name", ensemble.Root} {
			children, _, err := conn.Children(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, child := range children {
				all = append(all, &zk.DeleteRequest{Path: path + "/" + child, Version: -1})
			}
		}
		_, err := conn.Multi(append(all, &zk.DeleteRequest{Path: ensemble.Root, Version: -1})...)
		return err == nil
	})
	if got := <-out; !errors.Is(got.Err, redlatch.ErrRefused) {
		t.Error(got.Err)
	}
	asks(t, false, "zookeeper.(*store).Leave")
}

// A lock's node that an attempt or a waiter has made, and did not come to use, is used: servers never delete one that has
// been empty since it was made.
func TestUnusedPlace(t *testing.T) {
	t.Parallel()
	e := common(t)
	root := enginetest.Root(t)
	client := open(t, enginetest.Patient, zookeeper.Ensemble{Servers: e.Addrs(), Root: root})
	const names = 60
	for i := range names { // each gives up a little later, as long as it takes to lock a new name
		start := time.Now()
		enginetest.Unlock(t, enginetest.Lock(t, client, fmt.Sprint("used", i)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Since(start)*time.Duration(i)/names)
		client.TryLock(ctx, fmt.Sprint("name", i))
		cancel()
	}
	conn := connect(t, e)
	enginetest.Await(t, "all nodes were used", func() bool {
		if _, err := conn.Sync(root); err != nil {
			t.Fatal(err)
		}
		children, _, err := conn.Children(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, child := range children {
			if !strings.HasPrefix(child, "lock:") {
				continue
			}
			if there, node, err := conn.Exists(root + "/" + child); err != nil || there && node.Cversion == 0 {
				return false
			}
		}
		return true
	})
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
