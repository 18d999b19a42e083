package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// stopLimit is how long a server may take to end in order.
const stopLimit = 30 * time.Second

// PID returns the process id of the server's latest run, 0 if it never ran. The
// process may have ended: see [Server.Running].
func (s *Server) PID() int {
	if p := s.process(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// Running reports whether the server's process exists, frozen or not.
func (s *Server) Running() bool {
	p := s.process()
	return p != nil && p.running()
}

// Frozen reports whether the server was paused and has not been resumed since.
func (s *Server) Frozen() bool {
	p := s.process()
	return p != nil && p.frozen.Load()
}

// Kill ends the server at once, as a crash does, and returns when the process is
// gone. What it had written to a file is still there; what it had only in
// memory is lost. Killing a server that is down does nothing.
func (s *Server) Kill() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if p := s.process(); p != nil {
		p.kill()
	}
}

// Stop has the server end in order and returns when the process is gone: a
// snapshot is written where Options.Args configure save points. A frozen server
// is thawed first. One that has not ended after 30 s is killed, and that is an
// error. Stopping a server that is down does nothing.
func (s *Server) Stop() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.stop()
}

// Restart stops the server in order if it runs, starts it on the same port and
// directory, and blocks until it answers PING, ctx is done or 2 min have gone by.
// What it still knows is up to its configuration: nothing without Options.Args.
// For a crash, [Server.Kill] first. After a failure the server is down.
func (s *Server) Restart(ctx context.Context) error {
	return s.restart(ctx, func() error { return nil })
}

// RestartEmpty kills the server and starts it as [Server.Restart] does, with all
// of its data files removed. Its configuration and, in a cluster, its place
// there are kept.
func (s *Server) RestartEmpty(ctx context.Context) error {
	s.Kill()
	return s.restart(ctx, func() error {
		if err := os.RemoveAll(s.path(dataDir)); err != nil {
			return err
		}
		return os.Mkdir(s.path(dataDir), 0o700)
	})
}

func (s *Server) restart(ctx context.Context, between func() error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return fmt.Errorf("redistest: restarting %s: %w", s.Addr(), ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := s.stop()
	if err == nil {
		err = between()
	}
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		return fmt.Errorf("redistest: restarting %s: %w%s", s.Addr(), err, indent(s.Log()))
	}
	return nil
}

// Pause freezes the server and returns when it has stopped running: it keeps its
// connections and its memory, accepts connections (the kernel does) and answers
// nothing, while its wall clock goes on. It blocks for 30 s at most.
func (s *Server) Pause() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	p := s.process()
	if p == nil {
		return errExited
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := p.freeze(ctx); err != nil {
		return fmt.Errorf("redistest: pausing %s: %w", s.Addr(), err)
	}
	p.frozen.Store(true)
	return nil
}

// Resume lets a frozen server run on. It then answers what was sent meanwhile.
func (s *Server) Resume() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	p := s.process()
	if p == nil {
		return errExited
	}
	if err := p.thaw(); err != nil {
		return fmt.Errorf("redistest: resuming %s: %w", s.Addr(), err)
	}
	p.frozen.Store(false)
	return nil
}

// Close kills the server, gives up its port and removes its directory unless
// Options.Dir named it. Closing twice does nothing.
func (s *Server) Close() error {
	s.Kill()
	log := s.Log()
	s.mu.Lock()
	closed := s.closed
	s.closed, s.lastLog = true, log
	s.mu.Unlock()
	if closed {
		return nil
	}
	// A Restart that had its turn before closed was set is over now; later
	// ones see it.
	s.Kill()
	ReleasePort(s.port)
	var err error
	if s.clock != nil {
		err = s.clock.close()
	}
	if s.ownDir {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// Log returns the last 16 KiB of what the server has logged, over all its runs.
// It can be called after Close.
func (s *Server) Log() string {
	s.mu.Lock()
	closed, last := s.closed, s.lastLog
	s.mu.Unlock()
	if closed || s.dir == "" {
		return last
	}
	const tail = 16 << 10
	f, err := os.Open(s.path(logFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	end, err := f.Seek(0, 2)
	if err != nil {
		return ""
	}
	b := make([]byte, min(end, tail))
	n, _ := f.ReadAt(b, end-int64(len(b)))
	return string(b[:n])
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// exited is closed when the present process has ended.
func (s *Server) exited() <-chan struct{} {
	if p := s.process(); p != nil {
		return p.exited
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// stop ends the process in order; the caller has the turn.
func (s *Server) stop() error {
	p := s.process()
	if p == nil || !p.running() {
		return nil
	}
	// Both fail only when the process has ended by itself or cannot be asked.
	_ = p.thaw()
	if err := p.terminate(); err != nil && p.running() {
		p.kill()
		return nil
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		p.kill()
		return fmt.Errorf("redistest: %s did not end within %v of SIGTERM and was killed", s.Addr(), stopLimit)
	}
}

// run starts the process and waits until it answers; the caller has the turn,
// or is the only one who knows of s.
func (s *Server) run(ctx context.Context) error {
	log, err := os.OpenFile(s.path(logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	start, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	args := []string{s.path(confFile)}
	if s.opts.Sentinel {
		args = append(args, "--sentinel")
	}
	cmd := exec.Command(s.bin.path, args...)
	cmd.Dir = s.path(dataDir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.opts.Env...)
	if s.clock != nil {
		cmd.Env = append(cmd.Env, s.clock.env()...)
	}
	p, err := launch(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	if err := s.awaitReady(ctx, p); err != nil {
		p.kill()
		if written, readErr := os.ReadFile(s.path(logFile)); readErr == nil && int64(len(written)) > start &&
			strings.Contains(string(written[start:]), "Address already in use") {
			return fmt.Errorf("port %d: %w", s.port, errPortTaken)
		}
		return err
	}
	return nil
}

// awaitReady waits for this very process to answer: on a port that was taken in
// the last moment, somebody else might.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	return await(ctx, p.exited, func(ctx context.Context) (bool, error) {
		c, err := s.Dial(ctx)
		if err != nil {
			return false, err
		}
		defer c.Close()
		_, err = c.Do("PING")
		if e, ok := errors.AsType[ServerError](err); ok && e.Code() == "MASTERDOWN" {
			err = nil // up, but told to refuse until it has its master's data
		}
		if err != nil {
			return false, err
		}
		info, err := c.Do("INFO", "server")
		if err != nil {
			return false, err
		}
		text, _ := info.(string)
		if !strings.Contains(text, "process_id:"+strconv.Itoa(p.cmd.Process.Pid)+"\r\n") {
			return false, fmt.Errorf("another server answers on port %d", s.port)
		}
		return true, nil
	})
}
