package zookeeper_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// jars is where Debian's libzookeeper-java has the server.
const jars = "/usr/share/java"

// Times of the servers: a session may last from 1 s to 20 s, and a follower that does not hear its
// leader for 2 s gives up.
const (
	tick      = 500 * time.Millisecond
	syncLimit = 4
)

// server is one process.
type server struct {
	enginetest.Server
	id int
	// links are the ways to the other servers when they lead, by their id.
	links map[int]*redistest.Proxy
}

// ensemble is three servers.
type ensemble struct {
	enginetest.Servers
	t       redistest.TB
	servers []*server
}

// missing says what of the servers is not installed.
func missing() string {
	if _, err := exec.LookPath("java"); err != nil || runtime.GOOS == "windows" {
		return "there is no java: ./setup.sh installs it"
	}
	if _, err := os.Stat(filepath.Join(jars, "zookeeper.jar")); err != nil {
		return "there is no ZooKeeper (libzookeeper-java): ./setup.sh installs it"
	}
	return ""
}

// newEnsemble starts three servers, which are stopped after the test.
func newEnsemble(t redistest.TB, folder string, lines ...string) *ensemble {
	t.Helper()
	const n = 3
	e := &ensemble{t: t}
	p := enginetest.Ports(t, 3*n)
	for i := range n {
		s := &server{id: i + 1, links: make(map[int]*redistest.Proxy)}
		s.Port, s.Folder = p[3*i], filepath.Join(folder, fmt.Sprint("server", i+1))
		s.Command = []string{
			"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j.configuration=file:" + filepath.Join(s.Folder, "log4j.properties"),
			"-cp", jars + "/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.Folder, "zoo.cfg"),
		}
		config := []string{
			fmt.Sprintf("tickTime=%d", tick.Milliseconds()), "initLimit=10", fmt.Sprintf("syncLimit=%d", syncLimit), "maxSessionTimeout=20000",
			"dataDir=" + s.Folder, fmt.Sprintf("clientPort=%d", s.Port), "clientPortAddress=127.0.0.1", "admin.enableServer=false",
			"4lw.commands.whitelist=srvr", "forceSync=no",
		}
		for j := range n {
			quorum := p[3*j+1]
			if i != j {
				link := redistest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", quorum))
				s.links[j+1], quorum = link, redistestPort(t, link)
			}
			config = append(config, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", j+1, quorum, p[3*j+2]))
		}
		e.servers, e.Servers = append(e.servers, s), append(e.Servers, &s.Server)
		if err := os.MkdirAll(s.Folder, 0o700); err != nil {
			t.Fatalf("%v", err)
		}
		s.write(t, "myid", fmt.Sprint(s.id))
		s.write(t, "zoo.cfg", strings.Join(append(config, lines...), "\n")+"\n")
		s.write(t, "log4j.properties", "log4j.rootLogger=WARN, A\nlog4j.appender.A=org.apache.log4j.ConsoleAppender\nlog4j.appender.A.layout=org.apache.log4j.SimpleLayout\n")
	}
	t.Cleanup(e.KillAll)
	e.StartAll(t)
	e.awaitServing()
	return e
}

func redistestPort(t redistest.TB, p *redistest.Proxy) int {
	addr, err := net.ResolveTCPAddr("tcp", p.Addr())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return addr.Port
}

func (s *server) write(t redistest.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Folder, name), []byte(text), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}

// mode is what a server says it is: "leader", "follower", "standalone", or "" while it serves nobody.
func (s *server) mode() string {
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

// awaitServing waits until all servers that run serve clients.
func (e *ensemble) awaitServing() {
	e.t.Helper()
	deadline := time.Now().Add(2 * enginetest.Patience)
	for _, s := range e.servers {
		for s.Running() && s.mode() == "" {
			if time.Now().After(deadline) {
				e.t.Fatalf("server %d does not serve:\n%s", s.id, s.Said())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// leader returns the leader, and the others.
func (e *ensemble) leader(t *testing.T) (leader *server, followers []*server) {
	t.Helper()
	enginetest.Await(t, "there is a leader", func() bool {
		leader, followers = nil, nil
		for _, s := range e.servers {
			if s.Running() && s.mode() == "leader" {
				leader = s
			} else {
				followers = append(followers, s)
			}
		}
		return leader != nil
	})
	return leader, followers
}

// part cuts a follower off from the others, or joins it again. It goes on answering its clients
// until it notices.
func (s *server) part(on bool) {
	for _, link := range s.links {
		link.BlackHole(redistest.Both, on)
	}
}

// KillLeader implements enginetest.Ensemble.
func (e *ensemble) KillLeader(t *testing.T) {
	t.Helper()
	leader, _ := e.leader(t)
	leader.Kill()
}

// shared is the ensemble of the tests that do no harm to it.
var shared enginetest.Shared[ensemble]

func common(t *testing.T) *ensemble {
	t.Helper()
	skipWithout(t)
	return shared.Of(t, func(t redistest.TB, folder string) *ensemble { return newEnsemble(t, folder) })
}

// longSessions is the setting that enginetest.Patient needs.
const longSessions = "maxSessionTimeout=60000"

func own(t *testing.T, lines ...string) *ensemble {
	t.Helper()
	skipWithout(t)
	return newEnsemble(t, t.TempDir(), lines...)
}

func skipWithout(t *testing.T) {
	t.Helper()
	if why := missing(); why != "" {
		t.Skip(why)
	}
}
