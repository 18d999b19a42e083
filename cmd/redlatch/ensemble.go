package main

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/zookeeper"
)

// ensembleTTL is the default of --max-ttl if --nodes is an ensemble: the session has to last twice
// as long, and servers of ZooKeeper permit 40 s by default.
const ensembleTTL = 20 * time.Second

// onEnsemble reports whether --nodes is a URL of ZooKeeper or etcd. Such a URL is in pieces here, as
// commas separate its servers.
func (c *connection) onEnsemble() bool {
	return slices.ContainsFunc(c.Nodes, func(node string) bool { return ensemble.SchemeOf(node) != "" })
}

// assumeEnsemble sets the defaults of an ensemble.
func (c *connection) assumeEnsemble() {
	if c.sized = c.MaxTTL != 0 && (c.maxTTL.Changed || os.Getenv(variable(c.maxTTL)) != ""); !c.sized {
		c.MaxTTL = ensembleTTL
	}
}

// lockConfig is like config, for commands that work with all engines.
func (c *connection) lockConfig() (redlatch.Config, error) {
	if !c.onEnsemble() {
		return c.config()
	}
	return c.ensembleConfig()
}

// errNotRedis refuses a command that has no meaning with an ensemble.
func (c *connection) errNotRedis() error {
	return usage("ZooKeeper and etcd do not need it: their servers forget no lock when they restart, and their clients need not agree on settings",
		"--nodes is %s, but this command is for Redis and Valkey", shownEnsemble(c.Nodes))
}

// shownEnsemble returns --nodes without secrets.
func shownEnsemble(nodes []string) string {
	text := strings.Join(nodes, ",")
	u, err := ensemble.ParseURL(text)
	if err != nil {
		return ensemble.SchemeOf(text) + "://" + elided
	}
	return u.Redacted()
}

// ensembleConfig turns the flags into the library's settings for an ensemble, and sets c.ensemble. Its
// errors are usage errors.
func (c *connection) ensembleConfig() (redlatch.Config, error) {
	var none redlatch.Config
	for _, node := range c.Nodes {
		if ensemble.SchemeOf(c.Nodes[0]) == "" || strings.Contains(node, "://") && ensemble.SchemeOf(node) != ensemble.SchemeOf(c.Nodes[0]) {
			return none, usage("give either redis:// nodes, or one zk:// or etcd:// URL", "--nodes mixes engines")
		}
	}
	for _, f := range []struct {
		given     bool
		flag, why string
	}{
		{c.Deployment != defaultDeployment, "deployment", "the path of --nodes keeps clients apart"},
		{c.NodeTimeout != 0, "node-timeout", "the ensemble answers as one, within a second"},
		{c.Replicas != 0, "replicas", "a majority always has each lock"},
		{c.Fsync, "fsync", "a majority always has each lock on disk"},
		{c.ReplicaTimeout != 0, "replica-timeout", "a majority always has each lock"},
		{c.NoQuarantine, "no-quarantine", "no server is kept out when it restarts"},
		{c.Durable, "durable", "servers always have each lock on disk"},
	} {
		if f.given {
			name := "REDLATCH_" + strings.ToUpper(strings.ReplaceAll(f.flag, "-", "_"))
			return none, usage("leave --"+f.flag+" out, or unset "+name, "--%s has no meaning with %s: %s", f.flag, shownEnsemble(c.Nodes), f.why)
		}
	}
	u, err := ensemble.ParseURL(strings.Join(c.Nodes, ","))
	if err != nil {
		return none, usage("write --nodes zk://HOST1,HOST2/PATH or etcd://HOST1,HOST2/PREFIX, all servers of one ensemble in one URL", "--nodes: %w", err)
	}
	if !u.TLS && (c.CA != "" || c.Cert != "" || c.Key != "") {
		return none, usage("write "+u.Scheme+"s://, or leave --ca, --cert and --key out", "--ca, --cert and --key are for TLS, which %s does not use", u.Redacted())
	}
	password, err := c.password()
	switch {
	case err != nil:
		return none, err
	case password != "" && u.User == "":
		return none, usage("write "+u.Scheme+"://USER@HOST, or leave the password out", "a password is given, but --nodes names no user")
	}
	u.Password = cmp.Or(u.Password, password)
	c.ensemble = &u
	cfg := redlatch.Config{KeyTemplate: c.KeyTemplate}
	if c.sized {
		cfg.MaxTTL = c.MaxTTL
	}
	cfg.TLS, err = c.tls()
	return cfg, err
}

// openEnsemble connects to the ensemble.
func (c *connection) openEnsemble(cfg redlatch.Config) (*redlatch.Client, error) {
	if c.ensemble.Scheme == "zk" {
		return zookeeper.OpenURL(cfg, c.ensemble.String())
	}
	return etcd.OpenURL(cfg, c.ensemble.String())
}

// places returns a text that has the path for each server.
func (c *connection) places() []string {
	places := make([]string, len(c.ensemble.Servers))
	for i, server := range c.ensemble.Servers {
		places[i] = c.ensemble.Scheme + "://" + oneLoopback(server) + cmp.Or(c.ensemble.Path, "/redlatch")
	}
	return places
}

// opened turns an error from opening a client into an outcome.
func opened(err error) *outcome {
	end := &outcome{code: exitInternal, err: err}
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		end.code = exitUsage
	case errors.Is(err, redlatch.ErrRefused):
		end.code = exitRefused
	case errors.Is(err, redlatch.ErrNoQuorum):
		end.code = exitNoQuorum
	}
	return end
}
