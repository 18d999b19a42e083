package etcd_test

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
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
