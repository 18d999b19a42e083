// Package ensembletest starts ensembles of three real servers of ZooKeeper and etcd, for tests, and
// has their servers cut off from each other, stand still or die.
package ensembletest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Options are what servers are started with.
type Options struct {
	// Folder has their data and their logs.
	Folder string
	// Direct has the servers reach each other without what could cut them off: for measurements.
	Direct bool
	// Settings are added to those made here: lines of ZooKeeper's configuration, or arguments of
	// etcd. The last of those of one name counts.
	Settings []string
}

// Server is one server's process. Its fields are given; a zero one has none.
type Server struct {
	Port int // for clients
	// Folder has its data and its log.
	Folder string
	// Command is its command line.
	Command []string

	cmd     *exec.Cmd
	log     *os.File
	running bool
}

// Addr is its address for clients.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// Running reports whether it was started and not killed.
func (s *Server) Running() bool { return s.running }

// Start starts the process, whose output is appended to the log.
func (s *Server) Start(t redistest.TB) {
	t.Helper()
	var err error
	if s.log, err = os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	s.cmd = exec.Command(s.Command[0], s.Command[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	Bind(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	s.running = true
}

// Kill ends the process at once, and waits for that.
func (s *Server) Kill() {
	if s.running {
		s.running = false
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.log.Close()
	}
}

// PID is the process started last.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Signal is for a server that is to stand still, or to go on.
func (s *Server) Signal(t redistest.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%v", err)
	}
}

// Said is the end of its log.
func (s *Server) Said() []byte {
	text, _ := os.ReadFile(s.logPath())
	return text[max(0, len(text)-3000):]
}

func (s *Server) logPath() string { return filepath.Join(s.Folder, "log") }

// Servers are those of one ensemble.
type Servers []*Server

// Addrs are their addresses for clients.
func (s Servers) Addrs() []string {
	addrs := make([]string, len(s))
	for i, one := range s {
		addrs[i] = one.Addr()
	}
	return addrs
}

// StartAll starts them.
func (s Servers) StartAll(t redistest.TB) {
	t.Helper()
	for _, one := range s {
		one.Start(t)
	}
}

// KillAll kills those that run.
func (s Servers) KillAll() {
	for _, one := range s {
		one.Kill()
	}
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

// patience bounds what must happen; it says nothing about how fast.
const patience = time.Minute

// await waits until check is true, or fails with what is wrong.
func await(t redistest.TB, check func() bool, wrong func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v %s", patience, wrong())
		}
	}
}
