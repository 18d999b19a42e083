package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/printable"
)

// Ensemble says which servers hold the locks, and where. The zero value of each field except
// Servers is its default.
type Ensemble struct {
	// Servers are host:port of some or all servers of one ensemble; the port defaults to 2181.
	// They are tried one after the other until one answers.
	Servers []string

	// Root is the path of the node under which the locks are kept. If it is not there, it is made,
	// with those above it. Clients that share locks must have the same Root. If others keep
	// something there, that is an error. Defaults to "/redlatch".
	Root string

	// User and Password are credentials of the scheme digest. With them, what the client creates is
	// for this user alone; without them, it is for anybody who reaches the servers. Default to
	// none.
	User, Password string

	// Dial connects to a server, if set. ctx ends when the client is closed or the time for
	// connecting is over. It is refused with redlatch.Config.TLS, as TLS is then its own. Defaults to
	// TCP, or to TLS with redlatch.Config.TLS.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

const (
	defaultRoot = "/redlatch"
	defaultPort = "2181"
)

// Open is [redlatch.Open] over the ZooKeeper servers given, as host:port, with the defaults of
// [Ensemble].
func Open(config redlatch.Config, servers ...string) (*redlatch.Client, error) {
	return OpenWith(config, Ensemble{Servers: servers})
}

// OpenWith is [redlatch.Open] over an ensemble. It connects, and returns when it has a session and
// has found or made the Root, or after two seconds. Servers that cannot be reached are no error,
// because they may come back; until then Lock waits, and TryLock returns redlatch.ErrNoQuorum.
//
// It uses TTL, MaxTTL, MaxHold, KeyTemplate, Label, TLS, Logger and Observer of the Config. MaxTTL
// defaults to TTL, and TTL to 10 s. The session lasts for at least twice MaxTTL: the servers must
// permit that (maxSessionTimeout, which is 20 ticks where it is not set).
//
// The error wraps redlatch.ErrInvalid when a setting cannot work, before anything is sent or when
// the servers have said so. If the servers were not reached before OpenWith returned, calls return
// that error.
func OpenWith(config redlatch.Config, e Ensemble) (*redlatch.Client, error) {
	config, err := settings(config)
	if err != nil {
		return nil, invalid(err)
	}
	if e, err = e.complete(config); err != nil {
		return nil, invalid(err)
	}
	open := func(changed func(key string)) hook.Store { return ensemble.Bounded(newStore(config, e, changed)) }
	client, err := hook.Open(config, hook.Surroundings{Nodes: []hook.Node{{Name: e.name(), Store: open}}})
	if err != nil {
		return nil, err
	}
	return client.(*redlatch.Client), nil
}

// OpenURL is [OpenWith] for an ensemble named by a URL, as settings and the program redlatch have
// it:
//
//	zk://user:password@zk1,zk2:2181,zk3/root
//
// with zks:// for TLS. The port, the user and the root may be left out where they are the defaults.
// The user and the password are percent-encoded. No error has the password.
func OpenURL(config redlatch.Config, url string) (*redlatch.Client, error) {
	u, err := ensemble.Of("zk", url)
	if err == nil {
		config.TLS, err = u.Secure(config.TLS)
	}
	if err != nil {
		return nil, invalid(err)
	}
	return OpenWith(config, Ensemble{Servers: u.Servers, Root: u.Path, User: u.User, Password: u.Password})
}

func invalid(err error) error { return fmt.Errorf("zookeeper: %w: %w", redlatch.ErrInvalid, err) }

// complete fills in the defaults, and refuses what cannot work.
func (e Ensemble) complete(config redlatch.Config) (Ensemble, error) {
	if len(e.Servers) == 0 {
		return e, errors.New("no server given: name at least one, such as zk1:2181")
	}
	e.Servers = slices.Clone(e.Servers)
	for i, server := range e.Servers {
		address, err := ensemble.Address(server, defaultPort, "name one server in each, without scheme, user or path; the path is Ensemble.Root")
		if err != nil {
			// The server is not repeated: somebody may have written a password.
			return e, fmt.Errorf("Ensemble.Servers[%d]: %w", i, err)
		}
		e.Servers[i] = address
	}
	if e.Root == "" {
		e.Root = defaultRoot
	}
	if err := checkRoot(e.Root); err != nil {
		return e, err
	}
	if (e.User == "") != (e.Password == "") || strings.Contains(e.User, ":") {
		return e, errors.New("Ensemble.User and Ensemble.Password: give both or none; a user has no colon")
	}
	if e.Dial != nil && config.TLS != nil {
		return e, errors.New("redlatch.Config.TLS has no meaning beside Ensemble.Dial, which makes the connection: leave one of them out")
	}
	return e, nil
}

// checkRoot refuses a text that is no path, and a path whose node is the servers' own.
func checkRoot(root string) error {
	parts := strings.Split(root, "/")
	if parts[0] != "" || len(parts) < 2 {
		return fmt.Errorf("Ensemble.Root is %q: it must begin with a slash", root)
	}
	for _, part := range parts[1:] {
		if part == "" || part == "." || part == ".." || !printable.Is(part) {
			return fmt.Errorf("Ensemble.Root is %q: use a path of printable names, without a slash at its end", root)
		}
	}
	if parts[1] == "zookeeper" {
		return fmt.Errorf("Ensemble.Root is %q: what is under /zookeeper is the servers' own", root)
	}
	return nil
}

// name returns the name of the ensemble in errors.
func (e Ensemble) name() string { return strings.Join(e.Servers, ",") + e.Root }

// dialer returns the function that connects to the ensemble's servers.
func (e Ensemble) dialer(config *tls.Config) func(ctx context.Context, address string) (net.Conn, error) {
	switch {
	case e.Dial != nil:
		return e.Dial
	case config != nil:
		d := &tls.Dialer{Config: config}
		return func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, "tcp", address)
			return conn, explainTLS(address, err)
		}
	}
	d := new(net.Dialer)
	return func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
}

// explainTLS returns the error of a handshake, and says that there was no answer to it where that is so.
func explainTLS(address string, err error) error {
	op, isOp := errors.AsType[*net.OpError](err)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	if err == nil || isCertificate || isOp && (op.Op == "dial" || op.Op == "remote error") {
		return err
	}
	return fmt.Errorf("%s is connected and has not answered as a TLS server does (%w): see whether it hangs, look at Ensemble.Servers, and leave redlatch.Config.TLS out if these have no TLS (zk:// in a URL)", address, err)
}
