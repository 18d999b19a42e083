package etcd_test

import (
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
)

// A cluster that was restored from a backup gives smaller tokens than before. When the prefix was deleted they are
// larger again.
func TestBackupIsRestored(t *testing.T) {
	c := own(t)
	cluster := etcd.Cluster{Endpoints: c.Addrs(), Prefix: enginetest.Root(t)}
	token := func() uint64 {
		t.Helper()
		client := open(t, enginetest.Config, cluster)
		defer client.Close()
		held := enginetest.Lock(t, client, "name")
		enginetest.Unlock(t, held)
		return held.Token()
	}
	// restart stops the servers, has f called with each one's data and where its backup is, and starts them.
	restart := func(f func(data, backup string)) {
		t.Helper()
		c.KillAll()
		for _, s := range c.Servers {
			f(filepath.Join(s.Folder, "data"), filepath.Join(s.Folder, "backup"))
		}
		c.StartAll(t)
		c.AwaitServing()
	}
	token()
	restart(func(data, backup string) {
		if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
	})
	last := token()
	for range 20 {
		last = token()
	}
	restart(func(data, backup string) {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(backup, data); err != nil {
			t.Fatal(err)
		}
	})
	if smaller := token(); smaller >= last {
		t.Errorf("the token %d after %d, as if there had been no backup", smaller, last)
	}
	client := dial(t, c.Addrs()...)
	defer client.Close()
	if _, err := client.Delete(t.Context(), cluster.Prefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if larger := token(); larger <= last {
		t.Errorf("the token %d after %d", larger, last)
	}
}
