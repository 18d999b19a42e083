package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/urltest"
)

func TestParse(t *testing.T) {
	t.Parallel()
	cases := []struct {
		url, network, address, user, password string
		database                              int
		tls                                   bool
		name                                  string
	}{
		{url: "redis://127.0.0.1:7001", network: "tcp", address: "127.0.0.1:7001", name: "127.0.0.1:7001"},
		{url: "redis://example:7/", network: "tcp", address: "example:7", name: "example:7"},
		{url: "redis://example", network: "tcp", address: "example:6379", name: "example:6379"},
		{url: "valkey://example:7", network: "tcp", address: "example:7", name: "example:7"},
		{url: "redis://[::1]:7001", network: "tcp", address: "[::1]:7001", name: "[::1]:7001"},
		{url: "redis://alice:secret@example:7/3", network: "tcp", address: "example:7", user: "alice", password: "secret", database: 3, name: "example:7/3"},
		{url: "redis://:secret@example:7?db=2", network: "tcp", address: "example:7", password: "secret", database: 2, name: "example:7/2"},
		{url: "redis://alice:p%40ss%3A%2Fword%23@example:7", network: "tcp", address: "example:7", user: "alice", password: "p@ss:/word#", name: "example:7"},
		{url: "rediss://example:7", network: "tcp", address: "example:7", tls: true, name: "example:7"},
		{url: "valkeys://example:7", network: "tcp", address: "example:7", tls: true, name: "example:7"},
		{url: "unix:///run/redis.sock", network: "unix", address: "/run/redis.sock", name: "/run/redis.sock"},
		{url: "unix:///run/redis.sock?db=1", network: "unix", address: "/run/redis.sock", database: 1, name: "/run/redis.sock/1"},
		{url: "unix://alice:secret@/run/redis.sock", network: "unix", address: "/run/redis.sock", user: "alice", password: "secret", name: "/run/redis.sock"},
		{url: "redis://10.0.0.7:6379#a", network: "tcp", address: "10.0.0.7:6379", name: "a"},
		{url: "redis://10.0.0.7:6379/5#eu_west", network: "tcp", address: "10.0.0.7:6379", database: 5, name: "eu_west"},
		{url: "unix:/run/redis.sock", network: "unix", address: "/run/redis.sock", name: "/run/redis.sock"},
		{url: "redis://[fe80::1%25eth0]:7001", network: "tcp", address: "[fe80::1%eth0]:7001", name: "[fe80::1%eth0]:7001"},
		{url: "redis://alice:p:w@example:7", network: "tcp", address: "example:7", user: "alice", password: "p:w", name: "example:7"},
	}
	for _, c := range cases {
		t.Run(c.url, func(t *testing.T) {
			t.Parallel()
			o, name, err := Parse(c.url)
			if err != nil {
				t.Fatal(err)
			}
			if o.Network != c.network || o.Address != c.address || o.Username != c.user || o.Password != c.password ||
				o.Database != c.database || (o.TLS != nil) != c.tls || name != c.name {
				t.Errorf("%+v, name %q", o, name)
			}
			if c.tls && o.TLS.ServerName != "example" {
				t.Errorf("the certificate is to be for %q", o.TLS.ServerName)
			}
		})
	}
}

// A certificate has the address without the zone by which this machine reaches it.
func TestParseZoneWithTLS(t *testing.T) {
	t.Parallel()
	o, _, err := Parse("rediss://[fe80::1%25eth0]:7001")
	if err != nil {
		t.Fatal(err)
	}
	certificate := x509.Certificate{IPAddresses: []net.IP{net.ParseIP("fe80::1")}}
	if err := certificate.VerifyHostname(o.TLS.ServerName); err != nil || o.Address != "[fe80::1%eth0]:7001" {
		t.Errorf("%q: %v", o.Address, err)
	}
}

func TestParseSentinels(t *testing.T) {
	t.Parallel()
	o, name, err := Parse("rediss://alice:secret@a:26379/2?addr=b:26380&addr=c:26381&master_set=main&sentinel_username=bob&sentinel_password=s3cret")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a:26379", "b:26380", "c:26381"}; !slices.Equal(o.Addresses(), want) || o.Master != "main" || name != "main/2" {
		t.Errorf("%+v, name %q", o, name)
	}
	if o.Username != "alice" || o.Password != "secret" || o.SentinelUsername != "bob" || o.SentinelPassword != "s3cret" || o.Database != 2 {
		t.Errorf("%+v", o)
	}
	if o.TLS == nil || o.TLS.ServerName != "" {
		t.Errorf("the certificate is to be for %q, whoever is the master", o.TLS.ServerName)
	}
	if o, _, err := Parse("redis://a:7?addr=b&addr=[::1]&master_set=m"); err != nil || !slices.Equal(o.Addresses(), []string{"a:7", "b:6379", "[::1]:6379"}) {
		t.Errorf("%+v, %v", o, err)
	}
	other, _, err := Parse("redis://c:26381?addr=b:26380&addr=a:26379&master_set=main")
	if err != nil {
		t.Fatal(err)
	}
	if o.Place() != other.Place() {
		t.Errorf("%q and %q are one place", o.Place(), other.Place())
	}
}

func TestParseCluster(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"rediss://a:7001?addr=b:7002", "rediss://a:7001?cluster", "rediss://a:7001?cluster=true"} {
		o, name, err := Parse(url)
		if err != nil || !o.Cluster || name != "cluster" || o.Master != "" || o.TLS.ServerName != "" {
			t.Errorf("%s: %+v, name %q, %v", url, o, name, err)
		}
	}
	for _, text := range []string{"false", "0"} {
		if o, name, err := Parse("redis://a:7001/1?cluster=" + text); err != nil || o.Cluster || name != "a:7001/1" {
			t.Errorf("cluster=%s: %+v, name %q, %v", text, o, name, err)
		}
	}
	if _, name, err := Parse("redis://a:7001?cluster#eu"); err != nil || name != "eu" {
		t.Errorf("name %q, %v", name, err)
	}
}

// What cannot be used is refused with a word on the remedy.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	cases := []struct{ url, mention string }{
		{"", "empty: write redis://HOST:PORT"},
		{"127.0.0.1:6379", "write redis://127.0.0.1:6379,"},
		{"[::1]:6379/2", "write redis://[::1]:6379/2,"},
		{"localhost:6379", "write redis://localhost:6379,"},
		{"localhost", "redis://HOST:PORT"},
		{"http://localhost:6379", "redis://HOST:PORT"},
		{"redis://localhost:port", "port"},
		{"redis://localhost:65536", "from 1 to 65535"},
		{"redis://localhost:0", "from 1 to 65535"},
		{"redis://localhost:26379?addr=b:126380&master_set=main", "from 1 to 65535"},
		{"redis://localhost:6379/one", "database"},
		{"redis://localhost:6379/-1", "database"},
		{"redis://localhost:6379?db=-1", "database"},
		{"redis://localhost:6379/1?db=1", "twice"},
		{"redis://localhost:6379?timeout=5s", "db, skip_verify, addr"},
		{"redis://localhost:6379?db=1&timeout=5s", "number 2"},
		{"redis://localhost:6379?db=1&db=2", "db is there twice"},
		{"redis://localhost:26379?master_set=a%0Ab", "name"},
		{"redis://localhost:6379#a b", "name"},
		{"redis://localhost:6379# ", "name"},
		{"redis://localhost:6379#a%1Bb", "name"},
		{"redis://localhost:6379#%E2%80%AEb", "name"},
		{"redis://localhost:6379#" + strings.Repeat("a", 257), "name"},
		{"redis:# ", "redis://HOST:PORT"},
		{"redis:", "redis://HOST:PORT"},
		{"redis:10.0.0.1:6379", "write redis://10.0.0.1:6379"},
		{"redis:/10.0.0.1:6379/2", "write redis://10.0.0.1:6379/2"},
		{"rediss:example:6379", "write rediss://example:6379"},
		{"redis:hunter2", "redis://HOST:PORT"},
		{"unix://tmp/x", "write unix:///tmp/x"},
		{"unix:tmp/x", "unix:///PATH"},
		{"unix:///tmp/%1Bx", "path"},
		{"redis://a,b:6379", "host"},
		{"redis://alice:p/w@localhost:6379", "%2F"},
		{"redis://alice:12/w@localhost:6379", "%2F"},
		{"redis://alice:12#w@localhost:6379", "%23"},
		{"redis://alice:12?w@localhost:6379", "%3F"},
		{"redis://alice:a@b@localhost:6379", "%40"},
		{"redis://localhost?master_set=a&sentinel_password=a;b", "percent-encode"},
		{"redis://localhost:7001/1?cluster", "database 0"},
		{"redis://localhost:7001?cluster&master_set=main", "master_set"},
		{"redis://localhost:26379?sentinel_password=x", "master_set"},
		{"redis://localhost:7001?cluster=no", "cluster is true or false"},
		{"redis://localhost:7001?addr=b:7002&cluster=false", "several addresses"},
		{"redis://localhost:7001?addr=", "addr is empty"},
		{"redis://localhost:26379?addr=b:26379&master_set=", "master_set is empty"},
		{"unix:///run/redis.sock?master_set=main", "redis://HOST:PORT"},
		{"unix://", "unix:///PATH"},
		{"redis://local host:6379", "host"},
	}
	for _, c := range cases {
		t.Run(c.url, func(t *testing.T) {
			t.Parallel()
			o, name, err := Parse(c.url)
			if err == nil {
				t.Fatalf("taken as %+v, name %q", o, name)
			}
			if !strings.Contains(err.Error(), c.mention) {
				t.Errorf("the error does not mention %q: %v", c.mention, err)
			}
		})
	}
}

// marker stands for the secret.
const marker = "hUnTeR2"

// No secret is told to who reads errors and names, however malformed its URL.
func TestParseAndRedactHideSecrets(t *testing.T) {
	t.Parallel()
	urls, leaks := urltest.All(marker), 0
	for _, url := range urls {
		told := Redact(url)
		if o, name, err := Parse(url); err != nil {
			told += "\n" + err.Error()
			if o.Password != "" {
				t.Errorf("%q is refused, and has the password %q", url, o.Password)
			}
		} else {
			told += "\n" + name
		}
		if strings.Contains(told, marker) {
			leaks++
			t.Errorf("%q: told: %s", url, told)
		}
		if !printable.Is(strings.ReplaceAll(told, "\n", "")) {
			t.Errorf("%q: told: %q", url, told)
		}
	}
	t.Logf("%d URLs, %d leak", len(urls), leaks)
}

// What holds no secret is shown as it is.
func TestRedact(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://10.0.0.1:6379":                            "",
		"redis://10.0.0.1":                                 "",
		"rediss://[::1]:6379/3#eu":                         "",
		"redis://[fe80::1%25eth0]:6379":                    "",
		"unix:///run/redis.sock?db=1":                      "",
		"redis://a:1?addr=b:2&addr=c:3&master_set=main#eu": "",
		"rediss://a:1?cluster&skip_verify=true":            "",
		"10.0.0.1:6379":                                    "",
		"10.0.0.1:6379/3":                                  "",
		"[::1]:6379":                                       "",
		"redis://alice:secret@a:1/2?db=3#n":                "redis://xxxxx@a:1/2?db=3#n",
		"redis://secret@a:1":                               "redis://xxxxx@a:1",
		"redis://a:1?master_set=m&sentinel_username=bob&sentinel_password=secret&x=y": "redis://a:1?master_set=m&sentinel_username=xxxxx&sentinel_password=xxxxx&…",
		"unix://alice:secret@/run/redis.sock":                                         "unix://xxxxx@/run/redis.sock",
		"redis://a:1/one?db=two#a b":                                                  "redis://a:1/…?db=…#…",
		"redis://a:123456":                                                            "redis://…",
		"redis://alice:se/cret@a:1":                                                   "redis://…",
		"redis:alice:secret@a:1":                                                      "redis://…",
		"redis:10.0.0.1:6379":                                                         "redis://…",
		"secret":                                                                      "…",
		"alice:secret@a:1":                                                            "…",
		"secret://a:1":                                                                "…",
		"":                                                                            "…",
	} {
		if want == "" {
			want = url
		}
		if url == "" {
			want = "…"
		}
		if got := Redact(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// A password with anything in it, escaped or not, is in no message.
func FuzzRedact(f *testing.F) {
	for _, parts := range [][2]string{{"", ""}, {"12/", ""}, {"p#", "?"}, {"a@", "@b"}, {"12?addr=", "/"}, {"%", "%zz"}, {"\x1b", "\xff"}} {
		f.Add(parts[0], parts[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		password := before + marker + after
		urls := []string{
			"redis://alice:" + password + "@127.0.0.1:1/1",
			"rediss://:" + password + "@127.0.0.1?db=1#name",
			"unix://alice:" + password + "@/run/none.sock",
		}
		if !strings.ContainsAny(password, "#&") { // these begin something else that is well formed
			urls = append(urls, "redis://127.0.0.1:1?master_set=m&sentinel_password="+password)
		}
		for _, url := range urls {
			_, name, err := Parse(url)
			if told := fmt.Sprint(Redact(url), name, err); strings.Contains(told, marker) || !printable.Is(told) {
				t.Errorf("%q: told: %q", url, told)
			}
		}
	})
}

// The caller's TLS settings are for rediss:// only, and never undo what the URL says.
func TestSecure(t *testing.T) {
	t.Parallel()
	plain, _, err := Parse("redis://example:7")
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Secure(&tls.Config{ServerName: "other"}); err == nil || plain.TLS != nil {
		t.Errorf("a plain URL was given TLS: %v", err)
	}

	parse := func(url string, base *tls.Config) *tls.Config {
		t.Helper()
		o, _, err := Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Secure(base); err != nil {
			t.Fatal(err)
		}
		return o.TLS
	}
	if c := parse("rediss://example:7", nil); c == nil || c.ServerName != "example" || c.InsecureSkipVerify {
		t.Errorf("%+v", c)
	}
	base := &tls.Config{MinVersion: tls.VersionTLS13}
	if c := parse("rediss://example:7", base); c == base || c.ServerName != "example" || c.MinVersion != tls.VersionTLS13 {
		t.Errorf("%+v", c)
	}
	if base.ServerName != "" {
		t.Error("the caller's own settings were changed")
	}
	if c := parse("rediss://example:7", &tls.Config{ServerName: "other"}); c.ServerName != "other" {
		t.Errorf("%+v", c)
	}
	if c := parse("rediss://example:7?skip_verify=true", base); !c.InsecureSkipVerify {
		t.Errorf("%+v", c)
	}
}

// The parser takes anything without a panic, and what it takes has an address.
func FuzzParse(f *testing.F) {
	for _, url := range []string{"redis://a:b@h:1/2?db=3#n", "unix:///p", "rediss://[::1]", "", ":", "redis://%", "valkey://@:0/?skip_verify"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		o, name, err := Parse(url)
		if err == nil && (o.Address == "" || o.Network == "" || name == "" || o.Database < 0 || !printable.Is(name)) {
			t.Errorf("%q: %+v, name %q", url, o, name)
		}
		if err != nil && !printable.Is(err.Error()) {
			t.Errorf("%q: %v", url, err)
		}
		// What is shown of a URL that can be used leads to the same server.
		if shown := Redact(url); err == nil {
			if again, _, err := Parse(strings.Replace(shown, hidden+"@", "", 1)); err == nil && again.Place() != o.Place() {
				t.Errorf("%q is shown as %q", url, shown)
			}
		}
	})
}
