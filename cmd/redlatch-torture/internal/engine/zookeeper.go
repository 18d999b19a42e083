//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-zookeeper/zk"
)

// jars is the directory in which Debian's libzookeeper-java installs the server.
const jars = "/usr/share/java"

// logger is the one of the loggers there that writes to stderr. ZooKeeper uses the first on its path.
const logger = jars + "/slf4j-simple.jar"

// The servers' times. A follower that has not heard from its leader for syncLimit ticks, which is a
// second here, starts an election.
const (
	tickMS    = 250
	syncLimit = 4
)

// configure writes the configuration files of a server of ZooKeeper and sets its command line. peers are
// the lines that say where each server of the ensemble is.
func (s *Server) configure(peers []string) error {
	s.command = []string{
		"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", logger + ":" + jars + "/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.dir, "zoo.cfg"),
	}
	config := append([]string{
		fmt.Sprintf("tickTime=%d", tickMS), "initLimit=20", fmt.Sprintf("syncLimit=%d", syncLimit), "maxSessionTimeout=300000",
		"dataDir=" + s.dir, fmt.Sprintf("clientPort=%d", s.client), "clientPortAddress=127.0.0.1", "maxClientCnxns=0",
		"admin.enableServer=false", "4lw.commands.whitelist=srvr", "forceSync=no",
	}, peers...)
	var errs []error
	for name, text := range map[string]string{"myid": fmt.Sprint(s.id), "zoo.cfg": lines(config...)} {
		errs = append(errs, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}

// configureZookeeper configures all servers. fronts are the addresses at which they reach each other.
func (e *Ensemble) configureZookeeper(fronts []string) error {
	var errs []error
	for _, s := range e.Servers {
		var peers []string
		for j, other := range e.Servers {
			// A server listens at its own entry, so that one must not be a front. The election ports
			// have no fronts: ZooKeeper itself tells the other servers where to connect for an election.
			address := fronts[j]
			if other == s {
				address = loopback(s.peer)
			}
			peers = append(peers, fmt.Sprintf("server.%d=%s:%d", j+1, address, other.election))
		}
		errs = append(errs, s.configure(peers))
	}
	return errors.Join(errs...)
}

// srvr returns a server's answer to the command srvr, or "" if it does not answer.
func srvr(ctx context.Context, address string) string {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return ""
	}
	text, _ := io.ReadAll(conn) // an answer that is cut short names no mode
	return string(text)
}

// zookeeperState returns leading, following, or "" if the server does not serve clients.
func zookeeperState(ctx context.Context, address string) string {
	_, after, _ := strings.Cut(srvr(ctx, address), "Mode: ")
	mode, _, _ := strings.Cut(after, "\n")
	if mode != leading && mode != following {
		return ""
	}
	return mode
}

func zookeeperVersion(ctx context.Context, address string) string {
	_, after, _ := strings.Cut(srvr(ctx, address), "version: ")
	version, _, _ := strings.Cut(after, "-")
	return "ZooKeeper " + version
}

// zookeeperLeft is Left for ZooKeeper.
func zookeeperLeft(ctx context.Context, address, root string, names []string) (map[string]bool, error) {
	conn, _, err := zk.Connect([]string{address}, leftTime, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, conn.Close)
	defer func() {
		if stop() {
			conn.Close()
		}
	}()
	left := make(map[string]bool)
	for _, name := range names {
		children, _, err := conn.Children(root + "/lock:" + url.QueryEscape(name))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		left[name] = len(children) > 0
	}
	return left, nil
}

// lines joins lines to the text of a file.
func lines(text ...string) string { return strings.Join(text, "\n") + "\n" }

// silent is a logger that discards everything.
type silent struct{}

func (silent) Printf(string, ...any) {}
