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

// jars is where Debian's libzookeeper-java has the server.
const jars = "/usr/share/java"

// The servers' times: a follower that has not heard its leader for a second gives up. A tick must
// be short for that.
const (
	tickMS    = 250
	syncLimit = 4
)

// configure writes what a server of ZooKeeper reads. peers are how it reaches all, by their number.
func (s *Server) configure(peers []string) error {
	s.command = []string{
		"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
		"-Dlog4j.configuration=file:" + filepath.Join(s.dir, "log4j.properties"),
		"-cp", jars + "/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.dir, "zoo.cfg"),
	}
	config := append([]string{
		fmt.Sprintf("tickTime=%d", tickMS), "initLimit=20", fmt.Sprintf("syncLimit=%d", syncLimit), "maxSessionTimeout=300000",
		"dataDir=" + s.dir, fmt.Sprintf("clientPort=%d", s.client), "clientPortAddress=127.0.0.1", "maxClientCnxns=0",
		"admin.enableServer=false", "4lw.commands.whitelist=srvr", "forceSync=no",
	}, peers...)
	var errs []error
	for name, text := range map[string]string{
		"myid": fmt.Sprint(s.id), "zoo.cfg": lines(config...),
		"log4j.properties": lines("log4j.rootLogger=WARN, A", "log4j.appender.A=org.apache.log4j.ConsoleAppender", "log4j.appender.A.layout=org.apache.log4j.SimpleLayout"),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}

func (e *Ensemble) configureZookeeper(fronts []string) error {
	var errs []error
	for _, s := range e.Servers {
		var peers []string
		for j, other := range e.Servers {
			// What it is itself, it listens at. Elections are held beside the fronts: ZooKeeper
			// tells others by itself where they reach it for them.
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

// srvr is what a server answers to the command of that name.
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
	text, _ := io.ReadAll(conn) // what is cut short says nothing
	return string(text)
}

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

// zookeeperLeft says which of the locks have nodes of a holder or of one who waits.
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

func lines(text ...string) string { return strings.Join(text, "\n") + "\n" }

// silent is a log that keeps nothing.
type silent struct{}

func (silent) Printf(string, ...any) {}
