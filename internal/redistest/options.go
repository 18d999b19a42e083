package redistest

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// Options say what server to start. The zero value is a master without a
// password that keeps nothing on disk.
type Options struct {
	// Binary is the server program, a name in PATH or a path. Defaults to the
	// first of [Flavors].
	Binary string

	// Args are further settings as on the server's command line, say
	// {"--appendonly", "yes", "--appendfsync", "always"}. They override the
	// ones made here and become part of the server's configuration file, so
	// that CONFIG REWRITE and a restart keep them.
	Args []string

	// Password is what the default user must give. It is also what a replica
	// gives its master. Defaults to none.
	Password string

	// Users are ACL users, each as after "user" in a configuration file:
	// "alice on >secret ~lock:* +@all". One for "default" takes the place of all
	// that user is, Password included. Defaults to none.
	Users []string

	// TLS makes the server speak TLS only. Its certificate and every other
	// server's of this process are signed by one authority, so one client
	// configuration fits them all: see [Server.TLSConfig]. TLSClientAuth also
	// asks clients for a certificate, which that configuration holds.
	TLS, TLSClientAuth bool

	// Unix opens a Unix socket beside the port: see [Server.Socket].
	Unix bool

	// Port fixes the TCP port. Defaults to a free one, from a range that the
	// kernel gives no client, so that a restart finds it free again.
	Port int

	// Dir is where the server lives: configuration, log, data. It is made if
	// missing and kept by Close. Defaults to a temporary directory which Close
	// removes.
	Dir string

	// Env adds to the server's environment, as "NAME=value".
	Env []string

	// ReplicaOf is the host:port of the master to follow; it may be a proxy's.
	// Defaults to none.
	ReplicaOf string

	// ClockShim lets [Server.StepClock] move the server's wall clock. It needs
	// Linux and a C compiler.
	ClockShim bool

	// Sentinel starts a Sentinel instead of a data server. See [StartSentinel].
	Sentinel bool
}

// Files of a server, in its directory. Data has a directory of its own so that
// [Server.RestartEmpty] can drop all of it and nothing else.
const (
	confFile   = "server.conf"
	logFile    = "server.log"
	dataDir    = "data"
	socketFile = "sock"
	clockFile  = "clock"
)

// conf builds a configuration file.
type conf struct{ b strings.Builder }

func (c *conf) set(words ...string) {
	for i, w := range words {
		if i > 0 {
			c.b.WriteByte(' ')
			w = quote(w)
		}
		c.b.WriteString(w)
	}
	c.b.WriteByte('\n')
}

// quote writes a value so that the server's configuration parser reads it back
// as one word.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// config returns the text of the server's configuration file. Later lines win.
func (s *Server) config(port int) (string, error) {
	o := s.opts
	var c conf
	c.set("bind", "127.0.0.1")
	c.set("dir", filepath.Join(s.dir, dataDir))
	c.set("daemonize", "no")
	c.set("supervised", "no")
	if o.TLS {
		c.set("port", "0")
		c.set("tls-port", fmt.Sprint(port))
		c.set("tls-cert-file", s.path(certFile))
		c.set("tls-key-file", s.path(keyFile))
		c.set("tls-ca-cert-file", s.path(caFile))
		c.set("tls-replication", "yes")
		c.set("tls-auth-clients", yesNo(o.TLSClientAuth))
	} else {
		c.set("port", fmt.Sprint(port))
	}
	if o.Unix {
		c.set("unixsocket", s.path(socketFile))
	}
	if !o.Sentinel {
		c.set("save", "")
		c.set("appendonly", "no")
		// The default delay of 5 s, meant to gather replicas, would be added
		// to each start of one.
		c.set("repl-diskless-sync-delay", "0")
		// One level up from the data: RestartEmpty loses keys, not the node's
		// place in its cluster.
		c.set("cluster-config-file", filepath.Join("..", "nodes.conf"))
		if s.bin.major >= 7 {
			c.set("enable-debug-command", "local")
			// Else SIGTERM waits up to 10 s for a replica that lags or hangs.
			c.set("shutdown-timeout", "0")
		}
	}
	if o.ClockShim {
		// Its waits are absolute wall-clock times: under a clock that was
		// stepped back they end at once and the thread would spin.
		c.set("jemalloc-bg-thread", "no")
	}
	if o.Password != "" {
		c.set("requirepass", o.Password)
		c.set("masterauth", o.Password)
	}
	for _, u := range o.Users {
		c.set(append([]string{"user"}, strings.Fields(u)...)...)
	}
	if s.admin != "" {
		c.set("user", adminUser, "on", ">"+s.admin, "~*", "&*", "+@all")
	}
	if o.ReplicaOf != "" {
		host, p, err := net.SplitHostPort(o.ReplicaOf)
		if err != nil {
			return "", fmt.Errorf("Options.ReplicaOf must be host:port: %w", err)
		}
		c.set("replicaof", host, p)
	}
	lines, err := argLines(o.Args)
	if err != nil {
		return "", err
	}
	for _, l := range lines {
		c.set(l...)
	}
	return c.b.String(), nil
}

// argLines splits command line settings into one list of words each, the
// setting's name without its dashes first.
func argLines(args []string) ([][]string, error) {
	var lines [][]string
	for _, a := range args {
		if name, ok := strings.CutPrefix(a, "--"); ok {
			lines = append(lines, []string{name})
			continue
		}
		if len(lines) == 0 {
			return nil, fmt.Errorf(`Options.Args must begin with a setting such as "--appendonly", not %q`, a)
		}
		last := len(lines) - 1
		lines[last] = append(lines[last], a)
	}
	return lines, nil
}

func yesNo(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}
