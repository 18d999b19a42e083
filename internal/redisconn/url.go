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

	"github.com/redlatch/redlatch/internal/printable"
)

// parameters are the parameters that a URL may have.
var parameters = []string{"db", "skip_verify", "addr", "cluster", "master_set", "sentinel_username", "sentinel_password"}

// Parse reads the URL of one server: redis://, rediss:// (TLS) or unix://, each with user, password
// and database number; valkey:// and valkeys:// are the same as the first two. With the parameter
// master_set, the address and those of addr parameters are Sentinels', and the credentials are the
// server's. Without it, several addresses are those of a Cluster, as is a single one with the
// parameter cluster. name is the URL's fragment or, without one, the name of the master set,
// "cluster" or the address, with the database. Errors contain no secret, and no part of a malformed
// URL that may be one.
func Parse(raw string) (o Options, name string, err error) {
	u, err := split(raw)
	if err != nil {
		return o, "", err
	}
	query := u.Query()
	o = Options{Network: "tcp", Master: query.Get("master_set"), SentinelUsername: query.Get("sentinel_username"), SentinelPassword: query.Get("sentinel_password")}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	for _, read := range []func(*url.URL, url.Values) error{checkParameters, o.readAddress, o.readDatabase, o.readTLS, o.readCluster} {
		if err := read(u, query); err != nil {
			return Options{}, "", fmt.Errorf("%s: %w", Redact(raw), err)
		}
	}
	if (o.Master != "" || o.Cluster) && o.TLS != nil {
		o.TLS.ServerName = "" // each server is called by its own address
	}
	if err := o.check(query); err != nil {
		return Options{}, "", fmt.Errorf("%s: %w", Redact(raw), err)
	}
	if name = u.Fragment; name != "" {
		if err := CheckName(name); err != nil {
			return Options{}, "", fmt.Errorf("%s: %w", Redact(raw), err)
		}
		return o, name, nil
	}
	return o, nodeName(o), nil
}

// checkParameters refuses unknown parameters. It does not repeat them: they may be the rest of a
// password that was not escaped.
func checkParameters(u *url.URL, query url.Values) error {
	n := 0
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		n++
		key, _, _ := strings.Cut(pair, "=")
		switch {
		case !slices.Contains(parameters, key):
			return fmt.Errorf("unknown parameter, number %d after the ?: %s are known", n, strings.Join(parameters, ", "))
		case key != "addr" && len(query[key]) > 1:
			return fmt.Errorf("the parameter %s is there twice: give it once", key)
		}
	}
	return nil
}

func (o *Options) readAddress(u *url.URL, query url.Values) error {
	if u.Scheme == "unix" {
		o.Network, o.Address = "unix", strings.TrimSpace(u.Path)
		switch {
		case o.Address == "":
			return errors.New("it names no socket: write unix:///PATH")
		case !printable.Is(o.Address):
			return errors.New("the socket's path has characters that cannot be printed: give it another path, or a link to it")
		}
		return nil
	}
	for i, server := range append([]string{u.Host}, query["addr"]...) {
		host, port := hostPort(server)
		switch {
		case i > 0 && server == "":
			return errors.New("an addr is empty: write addr=HOST:PORT, or leave it out")
		case host != "" && !isHost(host):
			return errors.New("a host has characters that no host has: write HOST:PORT, and addr=HOST:PORT for further ones")
		case !isPort(port):
			// A number that is too large for a port may be a password.
			return errors.New("a port is not a number from 1 to 65535")
		}
		address := net.JoinHostPort(cmp.Or(host, "localhost"), cmp.Or(port, "6379"))
		if i == 0 {
			o.Address = address
		} else {
			o.More = append(o.More, address)
		}
	}
	return nil
}

func (o *Options) readDatabase(u *url.URL, query url.Values) error {
	texts := query["db"]
	if path := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/"); u.Scheme != "unix" && path != "" {
		texts = append(texts, path)
	}
	if len(texts) > 1 {
		return errors.New("it names the database twice: write /NUMBER or db=NUMBER")
	}
	for _, text := range texts {
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("the database is not a number: write redis://HOST:PORT/NUMBER or unix:///PATH?db=NUMBER")
		}
		if n < 0 {
			return fmt.Errorf("database %d: it starts at 0", n)
		}
		o.Database = n
	}
	return nil
}

func (o *Options) readTLS(u *url.URL, query url.Values) (err error) {
	if u.Scheme != "rediss" && u.Scheme != "valkeys" {
		return nil
	}
	host, _, _ := strings.Cut(u.Hostname(), "%") // no certificate has the zone of an IPv6 address
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(host, "localhost")}
	o.TLS.InsecureSkipVerify, err = isSet(query, "skip_verify")
	return err
}

func (o *Options) readCluster(_ *url.URL, query url.Values) error {
	cluster, err := isSet(query, "cluster")
	o.Cluster = o.Master == "" && (len(o.More) > 0 || cluster)
	return err
}

// isSet returns a parameter that is true if it has no value.
func isSet(query url.Values, name string) (set bool, err error) {
	text := query.Get(name)
	if text == "" {
		return query.Has(name), nil
	}
	if set, err = strconv.ParseBool(text); err != nil {
		return false, errors.New(name + " is true or false")
	}
	return set, nil
}

// check refuses settings that do not go together.
func (o *Options) check(query url.Values) error {
	cluster, _ := isSet(query, "cluster")
	switch {
	case o.Master == "" && query.Has("master_set"):
		return errors.New("master_set is empty: write master_set=NAME, or leave it out")
	case o.Cluster && query.Has("cluster") && !cluster:
		return errors.New("several addresses without master_set are those of a Cluster: name one, or leave cluster=false out")
	case o.Network == "unix" && (o.Master != "" || o.Cluster):
		return errors.New("a socket leads to one server; Sentinels, and the nodes of a Cluster, are at redis://HOST:PORT")
	case o.Master != "" && cluster:
		return errors.New("both master_set and cluster, but Sentinels do not watch a Cluster: leave master_set or cluster out")
	case o.Cluster && o.Database != 0:
		return errors.New("a Cluster has database 0 only")
	case o.Master == "" && o.SentinelUsername+o.SentinelPassword != "":
		return errors.New("the Sentinels' credentials are of no use without master_set=NAME")
	case o.Master != "":
		if err := CheckName(o.Master); err != nil {
			return fmt.Errorf("master_set: %w", err)
		}
	}
	return nil
}

// nodeName returns the name of a node that was given no #name. Clients on the node's own machine
// and elsewhere should agree on it.
func nodeName(o Options) string {
	if o.Cluster {
		return "cluster" // whichever of its nodes are named
	}
	name := cmp.Or(o.Master, o.Address)
	if o.Database != 0 {
		name += "/" + strconv.Itoa(o.Database)
	}
	return name
}

// Secure adds the TLS settings of base, if any, to those of the URL. A URL without TLS refuses them: what is meant
// to be secret would be sent in the clear.
func (o *Options) Secure(base *tls.Config) error {
	switch {
	case base == nil:
		return nil
	case o.TLS == nil:
		return fmt.Errorf("TLS is given, and %s is reached without it: write rediss://, or leave TLS out", o.Place())
	}
	config := base.Clone()
	if config.ServerName == "" {
		config.ServerName = o.TLS.ServerName
	}
	config.InsecureSkipVerify = config.InsecureSkipVerify || o.TLS.InsecureSkipVerify
	o.TLS = config
	return nil
}
