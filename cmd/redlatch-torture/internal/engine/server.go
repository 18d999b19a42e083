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
	// client, peer and election are the server's ports. etcd does not use the last one.
	client, peer, election int

	mu      sync.Mutex // guards process; nothing waits while it is held
	process *spawn.Process
}

// Addr returns the host:port for clients.
func (s *Server) Addr() string { return loopback(s.client) }

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// PID returns the process id, or 0 while the server is down.
func (s *Server) PID() int {
	if p := s.running(); p != nil {
		return p.PID()
	}
	return 0
}

// running returns the process, or nil while the server is down.
func (s *Server) running() *spawn.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Start starts the process with the data that the server had before. It does not wait until the server
// serves clients.
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

// Kill kills the process, even if it is paused, and returns when it is gone.
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

// Close kills the process and returns nil. It is for callers that need a method Close.
func (s *Server) Close() error {
	s.Kill()
	return nil
}

// Pause stops the process (SIGSTOP) until Resume.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume has the process run again (SIGCONT).
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	p := s.running()
	if p == nil {
		return errors.New("the server is down")
	}
	return p.Signal(sig)
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// said returns the end of the server's log, for an error message.
func (s *Server) said() string {
	const most = 2000
	text, _ := os.ReadFile(s.log())
	return string(text[max(0, len(text)-most):])
}

// askTime is how long state waits for the answer of a server.
const askTime = time.Second

// state returns leading, following, or "" while the server does not serve clients.
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

// Serving reports whether the server serves clients: it leads, or it has a leader.
func (s *Server) Serving(ctx context.Context) bool { return s.state(ctx) != "" }
