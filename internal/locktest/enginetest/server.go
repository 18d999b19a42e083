package enginetest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

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
	bind(s.cmd)
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

// Signal is for a server that is to stand still, or to go on.
func (s *Server) Signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
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

// Ports are free ones.
func Ports(t redistest.TB, n int) []int {
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

// cleanups are run after all tests, the last first.
var cleanups []func()

// sharedTB stands in for a test, as what is shared outlives that.
type sharedTB struct{ redistest.TB }

func (sharedTB) Cleanup(f func()) { cleanups = append(cleanups, f) }

// Shared has servers started once for all tests that do no harm to them, and stopped after all tests.
type Shared[E any] struct {
	once    sync.Once
	servers *E
}

// Of returns them. start is called the first time, with a folder that is deleted after all tests.
func (s *Shared[E]) Of(t *testing.T, start func(t redistest.TB, folder string) *E) *E {
	t.Helper()
	s.once.Do(func() {
		folder, err := os.MkdirTemp("", "redlatch-engine-")
		if err != nil {
			t.Fatal(err)
		}
		cleanups = append(cleanups, func() { os.RemoveAll(folder) })
		s.servers = start(sharedTB{t}, folder)
	})
	if s.servers == nil {
		t.Fatal("the servers did not start")
	}
	return s.servers
}
