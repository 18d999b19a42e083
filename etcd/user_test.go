package etcd_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
)

// With users, one who may not is refused in the server's words.
func TestUser(t *testing.T) {
	c := own(t)
	root := dial(t, c.Addrs()...)
	defer root.Close()
	prefix := "/locks"
	for _, user := range []string{"root", "me", "other", "reader", "one"} {
		if _, err := root.UserAdd(t.Context(), user, "secret"); err != nil {
			t.Fatal(err)
		}
	}
	_, err1 := root.RoleAdd(t.Context(), "root")
	_, err2 := root.UserGrantRole(t.Context(), "root", "root")
	_, err3 := root.RoleAdd(t.Context(), "locks")
	_, err4 := root.RoleGrantPermission(t.Context(), "locks", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	_, err5 := root.UserGrantRole(t.Context(), "me", "locks")
	_, err6 := root.RoleAdd(t.Context(), "reading")
	_, err7 := root.RoleGrantPermission(t.Context(), "reading", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermRead))
	_, err8 := root.UserGrantRole(t.Context(), "reader", "reading")
	_, err9 := root.RoleAdd(t.Context(), "key")
	_, err10 := root.RoleGrantPermission(t.Context(), "key", prefix, "", clientv3.PermissionType(clientv3.PermReadWrite))
	_, err11 := root.UserGrantRole(t.Context(), "one", "key")
	_, err12 := root.AuthEnable(t.Context())
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, err12); err != nil {
		t.Fatal(err)
	}
	t.Run("token is forgotten", func(t *testing.T) { tokenIsForgotten(t, c, prefix) })
	t.Run("watch is refused", func(t *testing.T) { watchIsRefused(t, c, prefix) })
	t.Run("release is refused", func(t *testing.T) { releaseIsRefused(t, c, prefix) })
	mine := open(t, enginetest.Patient, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix, User: "me", Password: "secret"})
	enginetest.Unlock(t, enginetest.Lock(t, mine, "name"))
	for name, other := range map[string]etcd.Cluster{
		"another user":                    {User: "other", Password: "secret"},
		"one who may only read":           {User: "reader", Password: "secret"},
		"one who may write the key alone": {User: "one", Password: "secret"},
	} {
		other.Endpoints, other.Prefix = c.Addrs(), prefix
		if report := examine(t, other); !enginetest.Says(report, true, "", "Cluster.Prefix") {
			t.Errorf("Examine of %s: %+v", name, report)
		}
		_, err := open(t, enginetest.Patient, other).TryLock(t.Context(), "name")
		if !errors.Is(err, redlatch.ErrRefused) || !errors.Is(err, rpctypes.ErrPermissionDenied) || !strings.Contains(err.Error(), "Cluster.Prefix") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if report := examine(t, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix, User: "me", Password: "secret"}); len(report.Problems) > 0 {
		t.Errorf("Examine of me: %+v", report)
	}
	nobody := open(t, enginetest.Patient, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix})
	if _, err := nobody.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrRefused) || !errors.Is(err, rpctypes.ErrUserEmpty) || !strings.Contains(err.Error(), "Cluster.User") {
		t.Errorf("nobody: %v", err)
	}
	if _, err := etcd.OpenWith(enginetest.Config, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix, User: "me", Password: "wrong"}); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("another password: %v", err)
	}
}

// tokenIsForgotten has the servers forget what they gave the client for its password, as when all restart: the client gives
// the password again, and keeps its lock.
func tokenIsForgotten(t *testing.T, c *ensembletest.Etcd, prefix string) {
	admin := dialRoot(t, c)
	defer admin.Close()
	locks := open(t, enginetest.Patient, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix, User: "me", Password: "secret"})
	held := enginetest.Lock(t, locks, "kept")
	if _, err := admin.UserChangePassword(t.Context(), "me", "secret"); err != nil { // which has them forget, though it is the same
		t.Fatal(err)
	}
	enginetest.Unlock(t, enginetest.Lock(t, locks, "new"))
	enginetest.Extend(t, held)
	enginetest.Unlock(t, held)
}

// watchIsRefused has the servers forget that token while a watch goes on: those that begin afterwards are not refused because of it.
func watchIsRefused(t *testing.T, c *ensembletest.Etcd, prefix string) {
	admin := dialRoot(t, c)
	defer admin.Close()
	cluster := etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix, User: "me", Password: "secret"}
	holder, watcher := open(t, enginetest.Patient, cluster), open(t, enginetest.Patient, cluster)
	first, second := enginetest.Lock(t, holder, "first"), enginetest.Lock(t, holder, "second")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func(name string) {
		t.Helper()
		go func() {
			for range watcher.Observe(ctx, name) {
			}
		}()
	}
	watch("first")
	enginetest.Await(t, "one watches", func() bool { return c.Watchers() == 1 })
	if _, err := admin.UserChangePassword(t.Context(), "me", "secret"); err != nil {
		t.Fatal(err)
	}
	watch("second")
	enginetest.Await(t, "both watch", func() bool { return c.Watchers() == 2 })
	cancel()
	enginetest.Unlock(t, first)
	enginetest.Unlock(t, second)
}

// releaseIsRefused takes away a user's rights on a lock that one of its clients holds and another waits for, and on one that was
// detached: the locks and the place in the queue end with the clients' etcd leases, and other locks are kept under new ones.
func releaseIsRefused(t *testing.T, c *ensembletest.Etcd, prefix string) {
	admin := dialRoot(t, c)
	defer admin.Close()
	place := prefix + "/lock/name"
	grant := func(role, from, to string) {
		t.Helper()
		_, err1 := admin.RoleAdd(t.Context(), role)
		_, err2 := admin.RoleGrantPermission(t.Context(), role, from, to, clientv3.PermissionType(clientv3.PermReadWrite))
		_, err3 := admin.UserGrantRole(t.Context(), "losing", role)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.UserAdd(t.Context(), "losing", "secret"); err != nil {
		t.Fatal(err)
	}
	grant("before", prefix, place)
	grant("name", place, clientv3.GetPrefixRangeEnd(place))
	grant("after", clientv3.GetPrefixRangeEnd(place), clientv3.GetPrefixRangeEnd(prefix))
	under := func(key string) clientv3.LeaseID {
		t.Helper()
		r, err := admin.Get(t.Context(), key, clientv3.WithPrefix())
		if err != nil || len(r.Kvs) == 0 {
			t.Fatalf("%s: %v, %v", key, r, err)
		}
		return clientv3.LeaseID(r.Kvs[0].Lease)
	}
	losing := etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix, User: "losing", Password: "secret"}
	holder, waiter, detacher := open(t, enginetest.Patient, losing), open(t, enginetest.Patient, losing), open(t, enginetest.Patient, losing)
	keptByHolder, keptByWaiter := enginetest.Lock(t, holder, "kept by holder"), enginetest.Lock(t, waiter, "kept by waiter")
	keptByDetacher := enginetest.Lock(t, detacher, "kept by detacher")
	held := enginetest.Lock(t, holder, "name")
	out := enginetest.LockIn(t, waiter, "name")
	detached := enginetest.Lock(t, detacher, "name2", redlatch.WithTTL(enginetest.Patient.TTL/2))
	before := map[*redlatch.Lock]clientv3.LeaseID{
		keptByHolder: under(place + "/held"), keptByWaiter: under(place + "/wait/"), keptByDetacher: under(place + "2/held"),
	}
	if _, err := admin.UserRevokeRole(t.Context(), "losing", "name"); err != nil {
		t.Fatal(err)
	}
	if _, err := detached.Detach(); err != nil {
		t.Error(err)
	}
	if err := held.Unlock(t.Context()); !errors.Is(err, redlatch.ErrRefused) || !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("the holder: %v", err)
	}
	if got := <-out; !errors.Is(got.Err, redlatch.ErrRefused) || !errors.Is(got.Err, rpctypes.ErrPermissionDenied) {
		t.Errorf("the waiter: %v", got.Err)
	}
	for kept, lease := range before {
		enginetest.Await(t, kept.Name()+" is under a new etcd lease", func() bool {
			enginetest.Extend(t, kept)
			return under(prefix+"/lock/"+url.QueryEscape(kept.Name())+"/held") != lease
		})
		if _, err := admin.Revoke(t.Context(), lease); err != nil { // or it ends by itself
			t.Fatal(err)
		}
	}
	mine := open(t, enginetest.Patient, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix, User: "me", Password: "secret"})
	for _, name := range []string{"name", "name2"} {
		next, err := locktest.TryInTime(t, mine, name)
		if err != nil {
			t.Fatal(err)
		}
		enginetest.Unlock(t, next)
	}
	for kept := range before {
		enginetest.Extend(t, kept)
		enginetest.Unlock(t, kept)
	}
}

// dialRoot is a client of the user who may do everything.
func dialRoot(t *testing.T, c *ensembletest.Etcd) *clientv3.Client {
	t.Helper()
	root, err := clientv3.New(clientv3.Config{Endpoints: c.Addrs(), Username: "root", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return root
}
