package zookeeper_test

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/zookeeper"
)

var engine = enginetest.Engine{
	Name:      "zookeeper",
	Transport: "go-zookeeper/zk.",
	Open: func(c redlatch.Config, servers []string, root string) (*redlatch.Client, error) {
		return zookeeper.OpenWith(c, zookeeper.Ensemble{Servers: servers, Root: root})
	},
	Common: func(t *testing.T) []string { return common(t).Addrs() },
	Own:    func(t *testing.T) enginetest.Ensemble { return own(t, longSessions) },
}

func TestMain(m *testing.M) { engine.Main(m) }

// open opens a client that is closed after the test.
func open(t *testing.T, c redlatch.Config, e zookeeper.Ensemble) *redlatch.Client {
	t.Helper()
	client, err := zookeeper.OpenWith(c, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// shared is the ensemble of the tests that do no harm to it.
var shared enginetest.Shared[ensembletest.ZooKeeper]

func common(t *testing.T) *ensembletest.ZooKeeper {
	t.Helper()
	skipWithout(t)
	return shared.Of(t, func(t redistest.TB, folder string) *ensembletest.ZooKeeper {
		return ensembletest.NewZooKeeper(t, ensembletest.Options{Folder: folder, Settings: []string{longSessions}})
	})
}

// longSessions is the setting that enginetest.Patient needs.
const longSessions = "maxSessionTimeout=60000"

func own(t *testing.T, lines ...string) *ensembletest.ZooKeeper {
	t.Helper()
	skipWithout(t)
	return ensembletest.NewZooKeeper(t, ensembletest.Options{Folder: t.TempDir(), Settings: lines})
}

func skipWithout(t *testing.T) {
	t.Helper()
	if why := ensembletest.ZooKeeperMissing(); why != "" {
		t.Skip(why)
	}
}
