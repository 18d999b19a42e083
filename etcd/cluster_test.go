package etcd_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch/internal/redistest"
)

// server is one process.
type server struct {
	port    int // for clients
	folder  string
	args    []string
	cmd     *exec.Cmd
	log     *os.File
	running bool
	// link is the others' way to it.
	link *redistest.Proxy
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// cluster is three servers.
type cluster struct {
	t       redistest.TB
	servers []*server
}

func (c *cluster) addrs() []string {
	addrs := make([]string, len(c.servers))
	for i, s := range c.servers {
		addrs[i] = s.addr()
	}
	return addrs
}

// ports are free ones.
func ports(t redistest.TB, n int) []int {
	t.Helper()
	found := make([]int, n)
	for i := range found {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer l.Close()
		found[i] = l.Addr().(*net.TCPAddr).Port
	}
	return found
}

// newCluster starts three servers, which are stopped after the test.
func newCluster(t redistest.TB, folder string) *cluster {
	t.Helper()
	const n = 3
	c := &cluster{t: t}
	p := ports(t, 2*n)
	var members []string
	for i := range n {
		s := &server{port: p[2*i], folder: filepath.Join(folder, fmt.Sprint("server", i+1)), link: redistest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", p[2*i+1]))}
		members = append(members, fmt.Sprintf("m%d=http://%s", i+1, s.link.Addr()))
		c.servers = append(c.servers, s)
	}
	for i, s := range c.servers {
		client := "http://" + s.addr()
		s.args = []string{
			"--name", fmt.Sprint("m", i+1), "--data-dir", filepath.Join(s.folder, "data"), "--log-level", "error", "--logger", "zap",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", p[2*i+1]), "--initial-advertise-peer-urls", "http://" + s.link.Addr(),
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", folder, "--heartbeat-interval", "100", "--election-timeout", "1000",
		}
		if err := os.MkdirAll(s.folder, 0o700); err != nil {
			t.Fatalf("%v", err)
		}
		s.start(t)
		t.Cleanup(func() { s.kill() })
	}
	c.awaitServing()
	return c
}

func (s *server) start(t redistest.TB) {
	t.Helper()
	var err error
	if s.log, err = os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	s.cmd = exec.Command("etcd", s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	bind(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	s.running = true
}

// kill ends the process at once, and waits for that.
func (s *server) kill() {
	if s.running {
		s.running = false
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.log.Close()
	}
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
	deadline := time.Now().Add(2 * patience)
	for _, s := range c.servers {
		if !s.running {
			continue
		}
		client := dial(c.t, s.addr())
		for {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := client.Get(ctx, "nothing")
			cancel()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				text, _ := os.ReadFile(filepath.Join(s.folder, "log"))
				c.t.Fatalf("%s does not serve: %v\n%s", s.addr(), err, text[max(0, len(text)-3000):])
			}
			time.Sleep(20 * time.Millisecond)
		}
		client.Close()
	}
}

// leader returns the leader, and the others.
func (c *cluster) leader(t *testing.T) (leader *server, followers []*server) {
	t.Helper()
	client := dial(t, c.addrs()...)
	defer client.Close()
	await(t, "there is a leader", func() bool {
		leader, followers = nil, nil
		for _, s := range c.servers {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			status, err := client.Status(ctx, s.addr())
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

// shared is the cluster of the tests that do no harm to it.
var shared struct {
	once     sync.Once
	cluster  *cluster
	cleanups []func()
}

// sharedTB stands in for a test, as the cluster outlives that.
type sharedTB struct{ redistest.TB }

func (sharedTB) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }

func common(t *testing.T) *cluster {
	t.Helper()
	skipWithout(t)
	shared.once.Do(func() {
		folder, err := os.MkdirTemp("", "redlatch-etcd-")
		if err != nil {
			t.Fatal(err)
		}
		shared.cleanups = append(shared.cleanups, func() { os.RemoveAll(folder) })
		shared.cluster = newCluster(sharedTB{t}, folder)
	})
	if shared.cluster == nil {
		t.Fatal("the cluster did not start")
	}
	return shared.cluster
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

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
