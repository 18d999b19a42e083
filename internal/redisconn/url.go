package redisconn

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// parameters are those that a URL may have.
var parameters = []string{"db", "skip_verify", "addr", "cluster", "master_set", "sentinel_username", "sentinel_password"}

var errNotURL = errors.New("not a URL: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH; check the host and the port, and write special characters of a password as %-escapes")

// Parse reads the URL of one server: redis://, rediss:// (TLS), unix://, each
// with user, password and database number; valkey:// and valkeys:// are the
// same. The parameters are those of rueidis.ParseURL: with master_set the address
// and those of addr parameters are Sentinels', and the credentials the server's;
// without, several addresses are those of a Cluster, as is one with cluster. name
// is the URL's fragment, or else the name of the master set, "cluster" or the
// address, with the database. Errors never contain the password.
func Parse(raw string) (o Options, name string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		// What the parser says repeats parts of the URL, and where it went wrong
		// these may be the password's.
		return o, "", errNotURL
	}
	shown := *u
	shown.RawQuery, shown.Fragment, shown.Opaque = "", "", ""
	address := shown.Redacted()
	switch u.Scheme {
	case "redis", "rediss", "valkey", "valkeys", "unix":
	case "":
		return o, "", fmt.Errorf("%q has no scheme: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH", address)
	default:
		return o, "", fmt.Errorf("unknown scheme %q: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH", u.Scheme)
	}
	for key := range u.Query() {
		if !slices.Contains(parameters, key) {
			return o, "", fmt.Errorf("%s: unknown parameter %q: %s are known", address, key, strings.Join(parameters, ", "))
		}
	}
	if u.Scheme != "unix" {
		u.Path = strings.TrimSuffix(u.Path, "/")
	}
	parsed, err := rueidis.ParseURL(u.String())
	if err != nil {
		return o, "", fmt.Errorf("%s: %w", address, err)
	}
	o = Options{
		Network:  "tcp",
		Address:  parsed.InitAddress[0],
		Username: parsed.Username,
		Password: parsed.Password,
		Database: parsed.SelectDB,
		TLS:      parsed.TLSConfig,
	}
	o.More, o.Master = parsed.InitAddress[1:], parsed.Sentinel.MasterSet
	o.SentinelUsername, o.SentinelPassword = u.Query().Get("sentinel_username"), u.Query().Get("sentinel_password")
	if u.Scheme == "unix" {
		o.Network = "unix"
	}
	o.Cluster = o.Master == "" && (len(o.More) > 0 || u.Query().Has("cluster"))
	if (o.Master != "" || o.Cluster) && o.TLS != nil {
		o.TLS.ServerName = "" // each server is called by its own address
	}
	switch {
	case o.Network == "unix" && (o.Master != "" || o.Cluster):
		return o, "", fmt.Errorf("%s: Sentinels, and the nodes of a Cluster, are at redis://HOST:PORT", address)
	case o.Master != "" && u.Query().Has("cluster"):
		return o, "", fmt.Errorf("%s: Sentinels do not watch a Cluster: leave master_set or cluster out", address)
	case o.Cluster && o.Database != 0:
		return o, "", fmt.Errorf("%s: a Cluster has database 0 only", address)
	case o.Master == "" && o.SentinelUsername+o.SentinelPassword != "":
		return o, "", fmt.Errorf("%s: the Sentinels' credentials are of no use without master_set=NAME", address)
	case o.Address == "":
		return o, "", fmt.Errorf("%s names no socket: write unix:///PATH", address)
	case o.Database < 0:
		return o, "", fmt.Errorf("%s: database %d: it starts at 0", address, o.Database)
	}
	for _, server := range o.addresses() {
		_, port, _ := net.SplitHostPort(server)
		if n, err := strconv.Atoi(port); o.Network == "tcp" && err == nil && (n < 1 || n > 65535) {
			return o, "", fmt.Errorf("%s: port %d: ports are 1 to 65535", address, n)
		}
	}
	return o, nodeName(o, u.Fragment), nil
}

// nodeName is how a node is called where no #name was given. Clients on the
// node's own machine and elsewhere had better agree.
func nodeName(o Options, fragment string) string {
	if fragment != "" {
		return strings.Join(strings.Fields(fragment), "_")
	}
	if o.Cluster {
		return "cluster" // whichever nodes are named
	}
	name := cmp.Or(o.Master, o.Address)
	if o.Database != 0 {
		name += "/" + strconv.Itoa(o.Database)
	}
	return name
}

// Secure lays the TLS settings of base, if any, under those of the URL, which
// decide whether TLS is used at all.
func (o *Options) Secure(base *tls.Config) {
	if base == nil || o.TLS == nil {
		return
	}
	config := base.Clone()
	if config.ServerName == "" {
		config.ServerName = o.TLS.ServerName
	}
	config.InsecureSkipVerify = config.InsecureSkipVerify || o.TLS.InsecureSkipVerify
	o.TLS = config
}
