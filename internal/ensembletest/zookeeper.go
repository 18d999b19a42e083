package ensembletest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// jars is where Debian's libzookeeper-java has the server.
const jars = "/usr/share/java"

// logger is the one of the loggers there that writes to stderr. ZooKeeper uses the first on its path.
const logger = jars + "/slf4j-simple.jar"

// Times of the servers: a session may last from 1 s to 20 s, and a follower that does not hear its
// leader for 2 s gives up.
const (
	tick      = 500 * time.Millisecond
	syncLimit = 4
)

// ZooKeeperServer is one process.
type ZooKeeperServer struct {
	Server
	id int
	// links are the ways to the other servers when they lead, by their id.
	links map[int]*redistest.Proxy
}

// ZooKeeper is three servers.
type ZooKeeper struct {
	Servers
	t   redistest.TB
	All []*ZooKeeperServer
}

// ZooKeeperMissing says what of ZooKeeper is not installed.
func ZooKeeperMissing() string {
	if _, err := exec.LookPath("java"); err != nil || runtime.GOOS == "windows" {
		return "there is no java: ./setup.sh installs it"
	}
	if _, err := os.Stat(filepath.Join(jars, "zookeeper.jar")); err != nil {
		return "there is no ZooKeeper (libzookeeper-java): ./setup.sh installs it"
	}
	return ""
}

// NewZooKeeper starts three servers, which are stopped after the test. It returns when all serve.
func NewZooKeeper(t redistest.TB, o Options) *ZooKeeper {
	t.Helper()
	const n = 3
	e := &ZooKeeper{t: t}
	p := ports(t, 3*n)
	for i := range n {
		s := &ZooKeeperServer{id: i + 1, links: make(map[int]*redistest.Proxy)}
		s.Port, s.Folder = p[3*i], filepath.Join(o.Folder, fmt.Sprint("server", i+1))
		s.Command = []string{
			"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-cp", logger + ":" + jars + "/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.Folder, "zoo.cfg"),
		}
		config := []string{
			fmt.Sprintf("tickTime=%d", tick.Milliseconds()), "initLimit=10", fmt.Sprintf("syncLimit=%d", syncLimit), "maxSessionTimeout=20000",
			"dataDir=" + s.Folder, fmt.Sprintf("clientPort=%d", s.Port), "clientPortAddress=127.0.0.1", "admin.enableServer=false",
			"4lw.commands.whitelist=srvr", "forceSync=no",
		}
		for j := range n {
			quorum := p[3*j+1]
			if i != j && !o.Direct {
				link := redistest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", quorum))
				// A follower may come before the new leader listens. It tries again when it is
				// refused, but not when it is accepted and cut: that election would come to nothing.
				link.KeepClientOpen(true)
				s.links[j+1], quorum = link, port(t, link)
			}
			config = append(config, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", j+1, quorum, p[3*j+2]))
		}
		e.All, e.Servers = append(e.All, s), append(e.Servers, &s.Server)
		if err := os.MkdirAll(s.Folder, 0o700); err != nil {
			t.Fatalf("%v", err)
		}
		s.write(t, "myid", fmt.Sprint(s.id))
		s.write(t, "zoo.cfg", strings.Join(append(config, o.Settings...), "\n")+"\n")
	}
	t.Cleanup(e.KillAll)
	e.StartAll(t)
	e.AwaitServing()
	return e
}

func port(t redistest.TB, p *redistest.Proxy) int {
	addr, err := net.ResolveTCPAddr("tcp", p.Addr())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return addr.Port
}

func (s *ZooKeeperServer) write(t redistest.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Folder, name), []byte(text), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}

// mode is what a server says it is: "leader", "follower", "standalone", or "" while it serves nobody.
func (s *ZooKeeperServer) mode() string {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "srvr")
	var reply bytes.Buffer
	reply.ReadFrom(conn)
	_, after, _ := strings.Cut(reply.String(), "Mode: ")
	mode, _, _ := strings.Cut(after, "\n")
	return mode
}

// AwaitServing waits until all servers that run serve clients.
func (e *ZooKeeper) AwaitServing() {
	e.t.Helper()
	for _, s := range e.All {
		await(e.t, func() bool { return !s.Running() || s.mode() != "" }, func() string {
			return fmt.Sprintf("server %d does not serve:\n%s", s.id, s.Said())
		})
	}
}

// Leader returns the leader, and the others.
func (e *ZooKeeper) Leader() (leader *ZooKeeperServer, followers []*ZooKeeperServer) {
	e.t.Helper()
	await(e.t, func() bool {
		leader, followers = nil, nil
		for _, s := range e.All {
			if s.Running() && s.mode() == "leader" {
				leader = s
			} else {
				followers = append(followers, s)
			}
		}
		return leader != nil
	}, func() string { return "there is no leader" })
	return leader, followers
}

// Part cuts a server off from the others, or joins it again. A follower goes on answering its
// clients until it notices.
func (e *ZooKeeper) Part(cut *ZooKeeperServer, on bool) {
	for _, s := range e.All {
		for id, link := range s.links {
			if s == cut || id == cut.id {
				link.BlackHole(redistest.Both, on)
			}
		}
	}
}

// KillLeader kills the leader once there is one.
func (e *ZooKeeper) KillLeader() {
	e.t.Helper()
	leader, _ := e.Leader()
	leader.Kill()
}

// LeaderPID is the leader's process, once there is one.
func (e *ZooKeeper) LeaderPID() int {
	e.t.Helper()
	leader, _ := e.Leader()
	return leader.PID()
}
