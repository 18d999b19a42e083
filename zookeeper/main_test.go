package zookeeper_test

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
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
