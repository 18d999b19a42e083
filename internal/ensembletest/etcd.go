package ensembletest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// EtcdServer is one process.
type EtcdServer struct {
	Server
	// peer is its address for the others, and link their way to it, if it can be cut off.
	peer string
	link *redistest.Proxy
}

// Etcd is three servers.
type Etcd struct {
	Servers
	t   redistest.TB
	All []*EtcdServer
}

// EtcdMissing says what of etcd is not installed.
func EtcdMissing() string {
	if _, err := exec.LookPath("etcd"); err != nil {
		return "there is no etcd (etcd-server): ./setup.sh installs it"
	}
	return ""
}

// NewEtcd starts three servers, which are stopped after the test. It returns when all serve.
func NewEtcd(t redistest.TB, o Options) *Etcd {
	t.Helper()
	const n = 3
	c := &Etcd{t: t}
	p := ports(t, 2*n)
	var members []string
	for i := range n {
		s := &EtcdServer{peer: fmt.Sprintf("127.0.0.1:%d", p[2*i+1])}
		s.Port, s.Folder = p[2*i], filepath.Join(o.Folder, fmt.Sprint("server", i+1))
		if !o.Direct {
			s.link = redistest.NewProxy(t, s.peer)
			s.peer = s.link.Addr()
		}
		members = append(members, fmt.Sprintf("m%d=http://%s", i+1, s.peer))
		c.All, c.Servers = append(c.All, s), append(c.Servers, &s.Server)
	}
	for i, s := range c.All {
		client := "http://" + s.Addr()
		s.Command = append([]string{
			"etcd", "--name", fmt.Sprint("m", i+1), "--data-dir", filepath.Join(s.Folder, "data"), "--log-level", "error", "--logger", "zap",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", p[2*i+1]), "--initial-advertise-peer-urls", "http://" + s.peer,
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", o.Folder, "--heartbeat-interval", "100", "--election-timeout", "1000",
		}, o.Settings...)
		if err := os.MkdirAll(s.Folder, 0o700); err != nil {
			t.Fatalf("%v", err)
		}
	}
	t.Cleanup(c.KillAll)
	c.StartAll(t)
	c.AwaitServing()
	return c
}

// web asks servers by HTTP, so that no client of etcd is needed.
var web = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// healthy reports whether a server answers for a majority.
func (s *EtcdServer) healthy() bool {
	reply, err := web.Get("http://" + s.Addr() + "/health")
	if err != nil {
		return false
	}
	defer reply.Body.Close()
	return reply.StatusCode == http.StatusOK
}

// leads reports whether a server says that it is the leader.
func (s *EtcdServer) leads() bool {
	reply, err := web.Post("http://"+s.Addr()+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
	if err != nil {
		return false
	}
	defer reply.Body.Close()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = json.NewDecoder(reply.Body).Decode(&status)
	return err == nil && status.Leader != "" && status.Leader == status.Header.Member
}

// Watchers is how many watches the servers have.
func (c *Etcd) Watchers() (n int) {
	c.t.Helper()
	for _, s := range c.All {
		reply, err := web.Get("http://" + s.Addr() + "/metrics")
		if err != nil {
			c.t.Fatalf("%v", err)
		}
		text, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		_, after, found := strings.Cut(string(text), "\netcd_debugging_mvcc_watcher_total ")
		if err != nil || !found {
			c.t.Fatalf("%v: %.100q", err, text)
		}
		one := 0
		fmt.Sscan(after, &one)
		n += one
	}
	return n
}

// AwaitServing waits until all servers that run answer for a majority.
func (c *Etcd) AwaitServing() {
	c.t.Helper()
	for _, s := range c.All {
		await(c.t, func() bool { return !s.Running() || s.healthy() }, func() string {
			return fmt.Sprintf("%s does not serve:\n%s", s.Addr(), s.Said())
		})
	}
}

// Leader returns the leader, and the others.
func (c *Etcd) Leader() (leader *EtcdServer, followers []*EtcdServer) {
	c.t.Helper()
	await(c.t, func() bool {
		leader, followers = nil, nil
		for _, s := range c.All {
			if s.leads() {
				leader = s
			} else {
				followers = append(followers, s)
			}
		}
		return leader != nil && len(followers) == len(c.All)-1
	}, func() string { return "there is no leader" })
	return leader, followers
}

// Mute has the others hear nothing of a member, which still hears them; or hear it again.
func (s *EtcdServer) Mute(on bool) { s.link.BlackHole(redistest.Both, on) }

// KillLeader kills the leader once there is one.
func (c *Etcd) KillLeader() {
	c.t.Helper()
	leader, _ := c.Leader()
	leader.Kill()
}

// LeaderPID is the leader's process, once there is one.
func (c *Etcd) LeaderPID() int {
	c.t.Helper()
	leader, _ := c.Leader()
	return leader.PID()
}
