package zookeeper_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	id      int
	port    int // for clients
	folder  string
	cmd     *exec.Cmd
	log     *os.File
	running bool
	// links are the ways to the other servers when they lead, by their id.
	links map[int]*redistest.Proxy
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// ensemble is three servers.
type ensemble struct {
	t       redistest.TB
	servers []*server
}

func (e *ensemble) addrs() []string {
	addrs := make([]string, len(e.servers))
	for i, s := range e.servers {
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

// newEnsemble starts n servers, which are stopped after the test.
func newEnsemble(t redistest.TB, n int, folder string, lines ...string) *ensemble {
	t.Helper()
	e := &ensemble{t: t}
	p := ports(t, 3*n)
	for i := range n {
		s := &server{id: i + 1, port: p[3*i], folder: filepath.Join(folder, fmt.Sprint("server", i+1)), links: make(map[int]*redistest.Proxy)}
		config := []string{
			fmt.Sprintf("tickTime=%d", tick.Milliseconds()), "initLimit=10", fmt.Sprintf("syncLimit=%d", syncLimit), "maxSessionTimeout=20000",
			"dataDir=" + s.folder, fmt.Sprintf("clientPort=%d", s.port), "clientPortAddress=127.0.0.1", "admin.enableServer=false",
			"4lw.commands.whitelist=srvr", "forceSync=no",
		}
		for j := range n {
			quorum := p[3*j+1]
			if i != j {
				link := redistest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", quorum))
				s.links[j+1], quorum = link, redistestPort(t, link)
			}
			if n > 1 {
				config = append(config, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", j+1, quorum, p[3*j+2]))
			}
		}
		e.servers = append(e.servers, s)
		if err := os.MkdirAll(s.folder, 0o700); err != nil {
			t.Fatalf("%v", err)
		}
		s.write(t, "myid", fmt.Sprint(s.id))
		s.write(t, "zoo.cfg", strings.Join(append(config, lines...), "\n")+"\n")
		s.write(t, "log4j.properties", "log4j.rootLogger=WARN, A\nlog4j.appender.A=org.apache.log4j.ConsoleAppender\nlog4j.appender.A.layout=org.apache.log4j.SimpleLayout\n")
	}
	for _, s := range e.servers {
		s.start(t)
		t.Cleanup(func() { s.kill() })
	}
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
	if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}

func (s *server) start(t redistest.TB) {
	t.Helper()
	var err error
	if s.log, err = os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	s.cmd = exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j.configuration=file:"+filepath.Join(s.folder, "log4j.properties"),
		"-cp", jars+"/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.folder, "zoo.cfg"))
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

// signal is for a server that is to stand still, or to go on.
func (s *server) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// mode is what a server says it is: "leader", "follower", "standalone", or "" while it serves nobody.
func (s *server) mode() string {
	conn, err := net.DialTimeout("tcp", s.addr(), time.Second)
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
	deadline := time.Now().Add(2 * patience)
	for _, s := range e.servers {
		for s.running && s.mode() == "" {
			if time.Now().After(deadline) {
				text, _ := os.ReadFile(filepath.Join(s.folder, "log"))
				e.t.Fatalf("server %d does not serve:\n%s", s.id, text[max(0, len(text)-3000):])
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// leader returns the leader, and the others.
func (e *ensemble) leader(t *testing.T) (leader *server, followers []*server) {
	t.Helper()
	await(t, "there is a leader", func() bool {
		leader, followers = nil, nil
		for _, s := range e.servers {
			if s.running && s.mode() == "leader" {
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

// shared is the ensemble of the tests that do no harm to it.
var shared struct {
	once     sync.Once
	ensemble *ensemble
	cleanups []func()
}

// sharedTB stands in for a test, as the ensemble outlives that.
type sharedTB struct{ redistest.TB }

func (sharedTB) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }

func common(t *testing.T) *ensemble {
	t.Helper()
	skipWithout(t)
	shared.once.Do(func() {
		folder, err := os.MkdirTemp("", "redlatch-zookeeper-")
		if err != nil {
			t.Fatal(err)
		}
		shared.cleanups = append(shared.cleanups, func() { os.RemoveAll(folder) })
		shared.ensemble = newEnsemble(sharedTB{t}, 3, folder)
	})
	if shared.ensemble == nil {
		t.Fatal("the ensemble did not start")
	}
	return shared.ensemble
}

func own(t *testing.T, n int, lines ...string) *ensemble {
	t.Helper()
	skipWithout(t)
	return newEnsemble(t, n, t.TempDir(), lines...)
}

func skipWithout(t *testing.T) {
	t.Helper()
	if why := missing(); why != "" {
		t.Skip(why)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
