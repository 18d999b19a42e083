package etcd_test

import (
	"context"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/locktest/conformance"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
)

// stage is a cluster as one node. The suite looks at it as another client of etcd does.
// It also does when a test is over, whose Context has ended then.
type stage struct {
	where  etcd.Cluster
	client *clientv3.Client
	seen   *sync.Map // the revision of a lease, and when it was seen first
}

func (s stage) Open(t *testing.T, c redlatch.Config) conformance.Client {
	t.Helper()
	return open(t, redlatch.Config{TTL: 20 * time.Second, MaxTTL: 30 * time.Second, MaxHold: c.MaxHold}, s.where)
}

func (stage) Nodes() int { return 1 }

func (s stage) place(key string) string { return s.where.Prefix + "/lock/" + url.QueryEscape(key) }

func (s stage) Value(t *testing.T, _ int, key string) string {
	t.Helper()
	r, err := s.client.Get(context.WithoutCancel(t.Context()), s.place(key)+"/held")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

// Left is what the lease was given when it was written last, from when it was first looked at.
func (s stage) Left(t *testing.T, _ int, key string) time.Duration {
	t.Helper()
	r, err := s.client.Get(context.WithoutCancel(t.Context()), s.place(key)+"/lease")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return 0
	}
	ms, err := strconv.Atoi(string(r.Kvs[0].Value))
	if err != nil {
		t.Fatal(err)
	}
	since, _ := s.seen.LoadOrStore(r.Kvs[0].ModRevision, time.Now())
	return time.Until(since.(time.Time)) + time.Duration(ms)*time.Millisecond
}

func (s stage) Set(t *testing.T, _ int, key, value string) {
	t.Helper()
	held, lease := s.place(key)+"/held", s.place(key)+"/lease"
	ops := []clientv3.Op{clientv3.OpDelete(held), clientv3.OpDelete(lease)}
	if value != "" {
		ops = []clientv3.Op{clientv3.OpPut(held, value), clientv3.OpPut(lease, "60000")}
	}
	if _, err := s.client.Txn(context.WithoutCancel(t.Context())).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
}

// What every client passes.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := common(t)
	for _, test := range conformance.Tests() {
		t.Run(test.Name, func(t *testing.T) {
			if !test.OfMutex() {
				t.Skip("this is refused")
			}
			t.Parallel()
			client := dial(t, c.Addrs()...)
			t.Cleanup(func() { client.Close() })
			test.Run(t, stage{etcd.Cluster{Endpoints: c.Addrs(), Prefix: enginetest.Root(t)}, client, new(sync.Map)})
		})
	}
}
