package etcd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// server is one process.
type server struct {
	enginetest.Server
	// link is the others' way to it.
	link *redistest.Proxy
}

// cluster is three servers.
type cluster struct {
	enginetest.Servers
	t       redistest.TB
	servers []*server
}

// newCluster starts three servers, which are stopped after the test.
func newCluster(t redistest.TB, folder string) *cluster {
	t.Helper()
	const n = 3
	c := &cluster{t: t}
	p := enginetest.Ports(t, 2*n)
	var members []string
	for i := range n {
		s := &server{link: redistest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", p[2*i+1]))}
		s.Port, s.Folder = p[2*i], filepath.Join(folder, fmt.Sprint("server", i+1))
		members = append(members, fmt.Sprintf("m%d=http://%s", i+1, s.link.Addr()))
		c.servers, c.Servers = append(c.servers, s), append(c.Servers, &s.Server)
	}
	for i, s := range c.servers {
		client := "http://" + s.Addr()
		s.Command = []string{
			"etcd", "--name", fmt.Sprint("m", i+1), "--data-dir", filepath.Join(s.Folder, "data"), "--log-level", "error", "--logger", "zap",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", p[2*i+1]), "--initial-advertise-peer-urls", "http://" + s.link.Addr(),
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", folder, "--heartbeat-interval", "100", "--election-timeout", "1000",
		}
		if err := os.MkdirAll(s.Folder, 0o700); err != nil {
			t.Fatalf("%v", err)
		}
	}
	t.Cleanup(c.KillAll)
	c.StartAll(t)
	c.awaitServing()
	return c
}

// dial is a client of the tests' own.
func dial(t redistest.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return client
}

// awaitServing waits until all servers that run answer for a majority.
func (c *cluster) awaitServing() {
	c.t.Helper()
	deadline := time.Now().Add(2 * enginetest.Patience)
	for _, s := range c.servers {
		if !s.Running() {
			continue
		}
		client := dial(c.t, s.Addr())
		for {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := client.Get(ctx, "nothing")
			cancel()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("%s does not serve: %v\n%s", s.Addr(), err, s.Said())
			}
			time.Sleep(20 * time.Millisecond)
		}
		client.Close()
	}
}

// leader returns the leader, and the others.
func (c *cluster) leader(t *testing.T) (leader *server, followers []*server) {
	t.Helper()
	client := dial(t, c.Addrs()...)
	defer client.Close()
	enginetest.Await(t, "there is a leader", func() bool {
		leader, followers = nil, nil
		for _, s := range c.servers {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			status, err := client.Status(ctx, s.Addr())
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				leader = s
			} else {
				followers = append(followers, s)
			}
		}
		return leader != nil && len(followers) == len(c.servers)-1
	})
	return leader, followers
}

// KillLeader implements enginetest.Ensemble.
func (c *cluster) KillLeader(t *testing.T) {
	t.Helper()
	leader, _ := c.leader(t)
	leader.Kill()
}

// shared is the cluster of the tests that do no harm to it.
var shared enginetest.Shared[cluster]

func common(t *testing.T) *cluster {
	t.Helper()
	skipWithout(t)
	return shared.Of(t, newCluster)
}

func own(t *testing.T) *cluster {
	t.Helper()
	skipWithout(t)
	return newCluster(t, t.TempDir())
}

func skipWithout(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("there is no etcd (etcd-server): ./setup.sh installs it")
	}
}
