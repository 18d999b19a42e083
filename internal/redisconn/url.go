package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

var errNotURL = errors.New("not a URL: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH; check the host and the port, and write special characters of a password as %-escapes")

// Parse reads the URL of one server: redis://, rediss:// (TLS), unix://, each
// with user, password and database number; valkey:// and valkeys:// are the
// same. name is the URL's fragment, or else the address with the database.
// Errors never contain the password.
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
		if key != "db" && key != "skip_verify" {
			return o, "", fmt.Errorf("%s: unknown parameter %q: db and skip_verify are known", address, key)
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
	if u.Scheme == "unix" {
		o.Network = "unix"
	}
	switch {
	case o.Address == "":
		return o, "", fmt.Errorf("%s names no socket: write unix:///PATH", address)
	case o.Database < 0:
		return o, "", fmt.Errorf("%s: database %d: it starts at 0", address, o.Database)
	}
	return o, nodeName(o, u.Fragment), nil
}

// nodeName is how a node is called where no #name was given. Clients on the
// node's own machine and elsewhere had better agree.
func nodeName(o Options, fragment string) string {
	if fragment != "" {
		return strings.Join(strings.Fields(fragment), "_")
	}
	name := o.Address
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
