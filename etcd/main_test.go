package etcd_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/internal/redistest"
)

var engine = enginetest.Engine{
	Name:      "etcd",
	Transport: "etcd/client/v3.",
	Open: func(c redlatch.Config, servers []string, root string) (*redlatch.Client, error) {
		return etcd.OpenWith(c, etcd.Cluster{Endpoints: servers, Prefix: root})
	},
	Common: func(t *testing.T) []string { return common(t).Addrs() },
	Own:    func(t *testing.T) enginetest.Ensemble { return own(t) },
}

func TestMain(m *testing.M) { engine.Main(m) }

// open opens a client that is closed after the test.
func open(t *testing.T, c redlatch.Config, where etcd.Cluster) *redlatch.Client {
	t.Helper()
	client, err := etcd.OpenWith(c, where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// shared is the cluster of the tests that do no harm to it.
var shared enginetest.Shared[ensembletest.Etcd]

func common(t *testing.T) *ensembletest.Etcd {
	t.Helper()
	skipWithout(t)
	return shared.Of(t, func(t redistest.TB, folder string) *ensembletest.Etcd {
		return ensembletest.NewEtcd(t, ensembletest.Options{Folder: folder})
	})
}

func own(t *testing.T) *ensembletest.Etcd {
	t.Helper()
	skipWithout(t)
	return ensembletest.NewEtcd(t, ensembletest.Options{Folder: t.TempDir()})
}

func skipWithout(t *testing.T) {
	t.Helper()
	if why := ensembletest.EtcdMissing(); why != "" {
		t.Skip(why)
	}
}

// dial is a client of the tests' own.
func dial(t *testing.T, addrs ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
