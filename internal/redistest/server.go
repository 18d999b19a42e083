package redistest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// ErrClosed is what a [Server] or [Proxy] answers after Close.
var ErrClosed = errors.New("closed")

// adminUser is the ACL user of our own commands, where the server asks for a
// password or has users: tests may forbid the default user everything.
const adminUser = "redistest-admin"

// Server is one server process on a loopback port, with a directory of its own.
// Its address stays the same over restarts. It is safe for concurrent use.
type Server struct {
	opts   Options
	bin    binary
	dir    string
	ownDir bool // made by us, removed by Close
	admin  string
	port   int // set before Start returns, fixed from then on
	clock  *wallClock

	// turn holds one token: who has it may start, stop or signal the process.
	// A channel, not a mutex, as it is kept while a process starts or ends.
	turn chan struct{}

	mu      sync.Mutex // guards the fields below; held for reading and writing them only
	proc    *process   // the latest run; nil before the first
	closed  bool
	lastLog string // the log's end, once Close has removed the file
}

// Start starts a server and blocks until it answers PING, ctx is done, or 2 min
// have gone by. ctx bounds the start alone; the server runs until
// [Server.Close], or until this process ends.
//
// errors.Is finds [ErrNoServer] when nothing is installed. Any other failure
// carries the end of the server's log. After a failure nothing is left behind.
func Start(ctx context.Context, opts Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	bin, err := findBinary(ctx, opts.Binary)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s := &Server{opts: opts, bin: bin, turn: make(chan struct{}, 1)}
	if opts.Password != "" || len(opts.Users) > 0 {
		s.admin = rand.Text()
	}
	err = s.settle(ctx)
	if err == nil {
		err = s.firstRun(ctx)
	}
	if err != nil {
		err = fmt.Errorf("redistest: starting %s: %w%s", bin.path, err, indent(s.Log()))
		_ = s.Close() // there is nothing to add to what went wrong first
		return nil, err
	}
	return s, nil
}

// StartNodes starts n independent servers at once, all with the same options.
// It blocks as [Start] does; when one fails to start, none is left running.
func StartNodes(ctx context.Context, n int, opts Options) ([]*Server, error) {
	if n > 1 && (opts.Port != 0 || opts.Dir != "") {
		return nil, errors.New("redistest: Options.Port and Options.Dir fit one server only, leave them empty for several")
	}
	servers := make([]*Server, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = Start(ctx, opts) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, s := range servers {
			if s != nil {
				_ = s.Close()
			}
		}
		return nil, err
	}
	return servers, nil
}

// settle makes the server's directory and what must be there before its
// configuration can be written.
func (s *Server) settle(ctx context.Context) error {
	s.dir = s.opts.Dir
	if s.dir == "" {
		// Short, whatever the test is called: the path of a Unix socket has
		// room for some 100 bytes.
		dir, err := os.MkdirTemp("", "redistest-")
		if err != nil {
			return err
		}
		s.dir, s.ownDir = dir, true
	}
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	s.dir = dir
	if err := os.MkdirAll(s.path(dataDir), 0o700); err != nil {
		return err
	}
	if s.opts.TLS {
		if err := writeCertificate(s.dir); err != nil {
			return err
		}
	}
	if s.opts.ClockShim {
		s.clock, err = newWallClock(ctx, s.dir)
	}
	return err
}

// firstRun finds a port and starts the server on it. A port that was free when
// it was chosen may be taken by the time the server binds it: then it tries
// another.
func (s *Server) firstRun(ctx context.Context) error {
	if s.opts.Port != 0 {
		if !reserve(s.opts.Port) {
			return fmt.Errorf("Options.Port %d is in use by another Server or Proxy", s.opts.Port)
		}
		return s.runOn(ctx, s.opts.Port)
	}
	for {
		port, err := ReservePort()
		if err != nil {
			return err
		}
		if err = s.runOn(ctx, port); !errors.Is(err, errPortTaken) {
			return err
		}
		ReleasePort(port)
		s.port = 0 // no longer ours to release
	}
}

func (s *Server) runOn(ctx context.Context, port int) error {
	s.port = port
	text, err := s.config(port)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(confFile), []byte(text), 0o600); err != nil {
		return err
	}
	return s.run(ctx)
}

// Addr returns the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port returns the server's TCP port.
func (s *Server) Port() int { return s.port }

// Dir returns the server's directory.
func (s *Server) Dir() string { return s.dir }

// Version returns what the program says its version is, say "7.0.15".
func (s *Server) Version() string { return s.bin.text }

// Socket returns the path of the server's Unix socket, "" without Options.Unix.
func (s *Server) Socket() string {
	if !s.opts.Unix {
		return ""
	}
	return s.path(socketFile)
}

// URL returns the server's address as a redis:// or, with Options.TLS, rediss://
// URL, with the password where there is one.
func (s *Server) URL() string {
	if s.opts.Password == "" {
		return s.URLAs("", "")
	}
	return s.URLAs("", s.opts.Password)
}

// URLAs returns the server's address as a URL for another user.
func (s *Server) URLAs(user, password string) string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.opts.TLS {
		u.Scheme = "rediss"
	}
	if user != "" || password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// TLSConfig returns a client configuration for this and every other server of
// this process; nil without Options.TLS.
func (s *Server) TLSConfig() *tls.Config {
	if !s.opts.TLS {
		return nil
	}
	return clientTLS()
}

// CAFile returns the path of the authority's certificate, in PEM; "" without
// Options.TLS.
func (s *Server) CAFile() string {
	if !s.opts.TLS {
		return ""
	}
	return s.path(caFile)
}

// Dial opens a connection with all rights. It blocks until connected or ctx is
// done, at most 30 s.
func (s *Server) Dial(ctx context.Context) (*Conn, error) {
	c, err := dialTLS(ctx, s.Addr(), s.TLSConfig())
	if err != nil {
		return nil, err
	}
	if s.admin != "" {
		if _, err := c.Do("AUTH", adminUser, s.admin); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Do sends one command on a connection of its own, with all rights, and blocks
// for the reply, at most 30 s. The result is as [Conn.Receive] says; an error
// reply is returned as a [ServerError].
func (s *Server) Do(args ...string) (any, error) {
	c, err := s.Dial(context.Background())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// Info returns the fields of INFO, one section's or, with none named, all.
func (s *Server) Info(sections ...string) (map[string]string, error) {
	v, err := s.Do(append([]string{"INFO"}, sections...)...)
	if err != nil {
		return nil, err
	}
	text, _ := v.(string)
	return fields(text), nil
}

// fields reads the name:value lines that INFO and its like answer.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func indent(log string) string {
	if log == "" {
		return ""
	}
	return "\nits log ends:\n\t" + strings.ReplaceAll(strings.TrimSpace(log), "\n", "\n\t")
}
