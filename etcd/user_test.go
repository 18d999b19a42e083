package etcd_test

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/ensembletest"
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
	admin, err := clientv3.New(clientv3.Config{Endpoints: c.Addrs(), Username: "root", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
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
