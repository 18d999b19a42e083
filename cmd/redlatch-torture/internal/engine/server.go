//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/spawn"
)

// Server is one server's process. Its methods are safe for concurrent use.
type Server struct {
	engine  Engine
	id      int // from 1
	dir     string
	command []string
	// client, peer and election are its ports; etcd has no election port.
	client, peer, election int

	mu      sync.Mutex // guards process; nothing waits while it is held
	process *spawn.Process
}

// Addr is its host:port for clients.
func (s *Server) Addr() string { return loopback(s.client) }

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// PID is its process id, 0 while it has none.
func (s *Server) PID() int {
	if p := s.running(); p != nil {
		return p.PID()
	}
	return 0
}

func (s *Server) running() *spawn.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Start starts the process, with the data that it had before. It does not wait until it serves.
func (s *Server) Start() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := spawn.Launch(s.command, log)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return nil
}

// Kill ends the process at once, also while it stands still, and returns when it is gone.
func (s *Server) Kill() {
	p := s.running()
	if p == nil {
		return
	}
	p.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = nil
}

// Close is Kill, for who closes what it has started.
func (s *Server) Close() error {
	s.Kill()
	return nil
}

// Pause has it stand still (SIGSTOP) until Resume.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume has it go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	p := s.running()
	if p == nil {
		return errors.New("the server is down")
	}
	return p.Signal(sig)
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// said is the end of its log, for an error.
func (s *Server) said() string {
	const most = 2000
	text, _ := os.ReadFile(s.log())
	return string(text[max(0, len(text)-most):])
}

// askTime is how long a server is waited for that is asked what it is.
const askTime = time.Second

// state is leading, following, or "" while it serves nobody.
func (s *Server) state(ctx context.Context) string {
	if s.running() == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if s.engine == Etcd {
		return etcdState(ctx, s.Addr())
	}
	return zookeeperState(ctx, s.Addr())
}

// Serving reports whether it serves clients: it leads, or it has a leader.
func (s *Server) Serving(ctx context.Context) bool { return s.state(ctx) != "" }
