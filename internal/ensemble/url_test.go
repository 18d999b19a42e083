package ensemble

import (
	"reflect"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/urltest"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]URL{
		"zk://h1":             {Scheme: "zk", Servers: []string{"h1:2181"}},
		" zk://h1,h2:1/a/b ":  {Scheme: "zk", Servers: []string{"h1:2181", "h2:1"}, Path: "/a/b"},
		"ZKS://h1/":           {Scheme: "zk", TLS: true, Servers: []string{"h1:2181"}},
		"etcd://[::1]:5,[::]": {Scheme: "etcd", Servers: []string{"[::1]:5", "[::]:2379"}},
		"etcds://u:p%40%3A%2F%2C@h,h2/a%20b%25": {
			Scheme: "etcd", TLS: true, Servers: []string{"h:2379", "h2:2379"}, Path: "/a b%", User: "u", Password: "p@:/,",
		},
		"zk://u:a,b@h":             {Scheme: "zk", Servers: []string{"h:2181"}, User: "u", Password: "a,b"},
		"zk://h/a%40b%3A//c%3F%23": {Scheme: "zk", Servers: []string{"h:2181"}, Path: "/a@b://c?#"},
		"zk://u@h/path":            {Scheme: "zk", Servers: []string{"h:2181"}, Path: "/path", User: "u"},
	} {
		u, err := ParseURL(text)
		if err != nil || !reflect.DeepEqual(u, want) {
			t.Errorf("%s: %+v, %v", text, u, err)
		}
		if again, err := ParseURL(u.String()); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%s is written as %s, which is %+v, %v", text, u, again, err)
		}
		if u.Password != "" && strings.Contains(u.Redacted(), u.User+":") {
			t.Errorf("shown: %s", u.Redacted())
		}
	}
	for text, why := range map[string]string{
		"":                        "not a URL",
		"zk":                      "not a URL",
		"zk:h1":                   "not a URL",
		"redis://h1":              "not a URL",
		"zookeeper://h1":          "not a URL",
		"zk://":                   "server 1 of 1",
		"zk://h1,,h2":             "server 2 of 3",
		"zk://h1,h1:2181":         "twice",
		"zk://h1:0":               "port",
		"zk://h1:65536":           "port",
		"zk://h1:port":            "port",
		"zk://h1?timeout=5s":      "no parameters",
		"zk://h1/a#name":          "no parameters",
		"zk://h1/%zz":             "path",
		"zk://h1/\x01":            "path",
		"zk://h1,zk://h2":         "a URL in a URL",
		"zk://:p@h1":              "user",
		"zk://u:p:q@h1":           "user",
		"zk://u:%zz@h1":           "user",
		"zk://u:p@x@h1":           "an @",
		"zk://u:12/3@h1":          "an @",
		"zk://h1/a@b":             "an @",
		"zk://h 1":                "server 1",
		"etcd://h1,redis://h2:12": "a URL in a URL",
	} {
		if u, err := ParseURL(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v, %v; want %q", text, u, err, why)
		}
	}
	if _, err := Of("zk", "etcd://h1"); err == nil {
		t.Error("another engine's")
	}
}

// No error repeats a password, however it is written.
func TestNoErrorHasAPassword(t *testing.T) {
	t.Parallel()
	const secret = "hUnTeR2"
	failed := 0
	for _, text := range urltest.All(secret) {
		for _, scheme := range []string{"zk", "etcd", "zks"} {
			_, rest, ok := strings.Cut(text, "://")
			if !ok || !strings.Contains(rest, "@") {
				continue
			}
			u, err := ParseURL(scheme + "://" + rest)
			if err != nil {
				failed++
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q: %v", scheme+"://"+rest, err)
				}
			} else if strings.Contains(u.Redacted(), secret) {
				t.Errorf("%q is shown as %s", scheme+"://"+rest, u.Redacted())
			}
		}
	}
	if failed == 0 {
		t.Error("none is wrong")
	}
}
