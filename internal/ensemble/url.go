package ensemble

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/printable"
)

// URL names an ensemble and where in it locks are kept:
//
//	zk://user:password@host1,host2:2181,[::1]:2181/path
//
// and the same with etcd://; zks:// and etcds:// are TLS.
type URL struct {
	// Scheme is zk or etcd.
	Scheme string
	TLS    bool
	// Servers are host:port, in their order.
	Servers []string
	// Path is "" for the default.
	Path           string
	User, Password string
}

// ports are the defaults, by scheme.
var ports = map[string]string{"zk": "2181", "etcd": "2379"}

const escaping = "percent-encode the user and the password: % as %25, @ as %40, : as %3A, / as %2F, ? as %3F, # as %23"

// SchemeOf is zk or etcd if the text is a URL of one of them, else "".
func SchemeOf(text string) string {
	scheme, _, ok := strings.Cut(strings.TrimSpace(text), ":")
	if scheme = strings.TrimSuffix(strings.ToLower(scheme), "s"); ok && ports[scheme] != "" {
		return scheme
	}
	return ""
}

// ParseURL reads one. The error repeats nothing that may be a password.
func ParseURL(text string) (URL, error) {
	text = strings.TrimSpace(text)
	u := URL{Scheme: SchemeOf(text)}
	before, rest, ok := strings.Cut(text, "://")
	if u.Scheme == "" || !ok {
		return URL{}, errors.New("not a URL: write zk://HOST1,HOST2/PATH or etcd://HOST1,HOST2/PREFIX, with zks or etcds for TLS")
	}
	u.TLS = strings.HasSuffix(strings.ToLower(before), "s")
	fail := func(format string, args ...any) (URL, error) {
		return URL{}, fmt.Errorf(u.Scheme+"://: "+format, args...)
	}
	authority, path, _ := strings.Cut(rest, "/")
	userinfo, hosts, has := cutLast(authority, "@")
	switch {
	case strings.Contains(userinfo+path, "@") || strings.Count(rest, "@") > 1:
		return fail("an @ is only between the password and the hosts: %s", escaping)
	case strings.Contains(rest, "://"):
		return fail("a URL in a URL: all servers of the ensemble are in one, %s://HOST1,HOST2/PATH", u.Scheme)
	case strings.ContainsAny(rest, "?#"):
		return fail("it has no parameters, and no #name: leave ? and # out, or %s", escaping)
	}
	var err error
	if has {
		user, password, _ := strings.Cut(userinfo, ":")
		u.User, err = url.PathUnescape(user)
		if err == nil {
			u.Password, err = url.PathUnescape(password)
		}
		if err != nil || strings.Contains(password, ":") || user == "" {
			return fail("the user and the password cannot be read: write USER:PASSWORD@; %s", escaping)
		}
	}
	for i, server := range strings.Split(hosts, ",") {
		address, err := Address(strings.TrimSpace(server), ports[u.Scheme], "its port is a number, and an IPv6 address has brackets")
		if err != nil {
			return fail("server %d of %d: %w", i+1, strings.Count(hosts, ",")+1, err)
		}
		if slices.Contains(u.Servers, address) {
			return fail("server %d of %d is there twice: name each once", i+1, strings.Count(hosts, ",")+1)
		}
		u.Servers = append(u.Servers, address)
	}
	decoded, err := url.PathUnescape(path)
	if err != nil || !printable.Is(decoded) {
		return fail("the path cannot be read: use printable names, and write %% as %%25")
	}
	if strings.Trim(decoded, "/") != "" {
		u.Path = "/" + decoded
	}
	return u, nil
}

// cutLast is strings.Cut at the last separator; what is before it is "" where there is none.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return "", s, false
}

// String is the URL with its password.
func (u URL) String() string {
	user := ""
	switch {
	case u.Password != "":
		user = url.UserPassword(u.User, u.Password).String() + "@"
	case u.User != "":
		user = url.User(u.User).String() + "@"
	}
	path := strings.NewReplacer("@", "%40", ":", "%3A").Replace((&url.URL{Path: u.Path}).EscapedPath()) // as ParseURL wants it
	return u.scheme() + user + strings.Join(u.Servers, ",") + path
}

// Redacted is the URL without the user and the password.
func (u URL) Redacted() string {
	u.User, u.Password = "", ""
	return u.String()
}

func (u URL) scheme() string {
	if u.TLS {
		return u.Scheme + "s://"
	}
	return u.Scheme + "://"
}

// Secure is the TLS that the URL asks for, with the settings of base, if any.
func (u URL) Secure(base *tls.Config) (*tls.Config, error) {
	switch {
	case u.TLS && base == nil:
		return new(tls.Config), nil
	case !u.TLS && base != nil:
		return nil, fmt.Errorf("redlatch.Config.TLS is given, and the URL is %s://: write %ss://, or leave it out", u.Scheme, u.Scheme)
	}
	return base, nil
}

// Of reads a URL of the scheme, for an engine that has no other.
func Of(scheme, text string) (URL, error) {
	u, err := ParseURL(text)
	if err == nil && u.Scheme != scheme {
		return URL{}, fmt.Errorf("the URL is of %s://, and %s:// is meant", u.Scheme, scheme)
	}
	return u, err
}
