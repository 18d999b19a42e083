package redisconn

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/redlatch/redlatch/internal/printable"
)

// schemes are the schemes that a URL may have.
var schemes = []string{"redis", "rediss", "valkey", "valkeys", "unix"}

// hidden stands for a secret, and unread for a part that is not understood and may be one.
const (
	hidden = "xxxxx"
	unread = "…"
)

var (
	errEmpty    = errors.New("empty: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH, or leave it out")
	errNotURL   = errors.New("not a URL: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH; check the host and the port; " + escaping)
	errNoScheme = errors.New("no scheme: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH")
	errPassword = errors.New("an @ is only between the password and the host: " + escaping)
	errQuery    = errors.New("the parameters after ? cannot be read: " + escaping)
)

const escaping = "percent-encode the user and the password: % as %25, @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, & as %26, + as %2B, a space as %20"

// Redact returns what can be shown of a URL that a user gave, well formed or not: neither the user
// nor a password, and only those parameters that hold no secret. Of a text that is not a URL it
// shows an address, HOST:PORT, and nothing else. It is the only function that writes URLs for
// people.
func Redact(raw string) string {
	raw = strings.TrimSpace(raw)
	u, err := split(raw)
	if err != nil {
		if isAddress(raw) {
			return raw
		}
		scheme, _, _ := strings.Cut(raw, ":")
		if scheme = strings.ToLower(scheme); slices.Contains(schemes, scheme) {
			return scheme + "://" + unread
		}
		return unread
	}
	var shown strings.Builder
	shown.WriteString(u.Scheme + "://")
	if u.User.String() != "" {
		shown.WriteString(hidden + "@")
	}
	if u.Host == "" || isHostPort(u.Host) {
		shown.WriteString(strings.ReplaceAll(u.Host, "%", "%25")) // before the zone of an IPv6 address
	} else {
		shown.WriteString(unread)
	}
	switch {
	case u.Scheme == "unix" && printable.Is(u.Path), strings.TrimLeft(u.Path, "/0123456789") == "":
		shown.WriteString(u.EscapedPath())
	default:
		shown.WriteString("/" + unread)
	}
	between := "?"
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		shown.WriteString(between + shownParameter(pair))
		between = "&"
	}
	switch {
	case u.Fragment == "":
	case CheckName(u.Fragment) == nil:
		shown.WriteString("#" + u.EscapedFragment())
	default:
		shown.WriteString("#" + unread)
	}
	return shown.String()
}

// shownParameter returns what can be shown of KEY=VALUE.
func shownParameter(pair string) string {
	key, value, _ := strings.Cut(pair, "=")
	decoded, err := url.QueryUnescape(value)
	open := err == nil
	switch key {
	case "db":
		_, err := strconv.Atoi(decoded)
		open = open && err == nil
	case "skip_verify", "cluster":
		_, err := strconv.ParseBool(decoded)
		open = open && (decoded == "" || err == nil)
	case "addr":
		open = open && isHostPort(decoded)
	case "master_set":
		open = open && CheckName(decoded) == nil
	case "sentinel_username", "sentinel_password":
		return key + "=" + hidden
	default:
		return unread
	}
	if !open {
		return key + "=" + unread
	}
	return pair
}

// split takes a URL apart. It refuses one where it is not certain what is a password: an @ that is
// not before the host comes from a password that was not escaped. The error repeats nothing that
// may be secret.
func split(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, errEmpty
	case isAddress(raw):
		return nil, errors.New("no scheme: write redis://" + raw + ", or rediss:// for TLS")
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error repeats parts of the URL and, depending on where it went wrong, these
		// may be the password's.
		return nil, errNotURL
	}
	after := raw[min(len(raw), len(u.Scheme)+1):]
	switch {
	case u.Scheme == "":
		return nil, errNoScheme
	case slices.Contains([]string{"http", "https", "tcp", "tls"}, u.Scheme):
		return nil, errors.New(u.Scheme + ":// is not spoken: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH")
	case !slices.Contains(schemes, u.Scheme):
		return nil, errors.New("unknown scheme: write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH")
	case strings.Count(raw, "@") > 1, strings.Contains(raw, "@") && u.User == nil:
		return nil, errPassword
	case u.Scheme == "unix" && strings.HasPrefix(after, "/") && u.Host == "":
		// unix:/PATH is unambiguous, too.
	case !strings.HasPrefix(after, "//"):
		form := "//HOST:PORT"
		if address := strings.TrimLeft(after, "/"); isAddress(address) {
			form = "//" + address
		} else if u.Scheme == "unix" {
			form = "///PATH"
		}
		return nil, errors.New("two slashes are missing: write " + u.Scheme + ":" + form)
	case u.Scheme == "unix" && u.Host != "":
		form := "/PATH"
		if u.User == nil && isHost(u.Host) && !strings.Contains(u.Host, ":") && printable.Is(u.Path) && u.RawQuery == "" && u.Fragment == "" {
			form = "/" + u.Host + u.EscapedPath()
		}
		return nil, errors.New("a socket has no host, and three slashes: write unix://" + form)
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil {
		return nil, errQuery
	}
	return u, nil
}

// maxNodeName bounds a node's name, in bytes.
const maxNodeName = 256

var errName = errors.New("the node's name has characters that it cannot have: use up to 256 printable ones, without spaces and without @ # ? & =")

// CheckName refuses a text that cannot be a node's name. Characters that need no % in a URL's
// parameters and fragment come from a password that was not escaped.
func CheckName(name string) error {
	if name == "" || len(name) > maxNodeName || !printable.Is(name) || strings.ContainsAny(name, " @#?&=") {
		return errName
	}
	return nil
}

// isAddress reports whether s is HOST:PORT, with or without /DATABASE.
func isAddress(s string) bool {
	address, database, has := strings.Cut(s, "/")
	if has && (database == "" || strings.Trim(database, "0123456789") != "") {
		return false
	}
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != "" && isHostPort(address)
}

// isHostPort reports whether s is HOST, HOST:PORT or :PORT.
func isHostPort(s string) bool {
	host, port := hostPort(s)
	return (host == "" || isHost(host)) && isPort(port)
}

// isPort reports whether s is a port, or "".
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

// hostPort takes HOST:PORT apart; port is "" if there is none.
func hostPort(s string) (host, port string) {
	if host, port, err := net.SplitHostPort(s); err == nil {
		return host, port
	}
	return strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), ""
}

// isHost reports whether s has only the characters of a host name, or is an IP address.
func isHost(s string) bool {
	if strings.Contains(s, ":") {
		_, err := netip.ParseAddr(s)
		return err == nil && printable.Is(s) && !strings.ContainsAny(s, " @/?#")
	}
	strange := func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N, unicode.M) && !strings.ContainsRune("-._", r)
	}
	return s != "" && printable.Is(s) && !strings.ContainsFunc(s, strange)
}
