package redlatch_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Open refuses a Config that cannot work before it sends anything, with an error that names the
// setting and what to do about it.
func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	second := redistest.NewProxy(t, server.Addr())
	url := proxy.URL()
	host, port, _ := strings.Cut(proxy.Addr(), ":")
	cases := []struct {
		name   string
		config redlatch.Config
		words  []string // the setting, and the remedy
	}{
		{"no nodes", redlatch.Config{}, []string{"Nodes", "at least one", "redis://"}},
		{"no scheme", redlatch.Config{Nodes: []string{"127.0.0.1:6379"}}, []string{"Nodes[0]", "redis://127.0.0.1:6379"}},
		{"empty URL", redlatch.Config{Nodes: []string{url, ""}}, []string{"Nodes[1]", "redis://HOST:PORT"}},
		{"bad port", redlatch.Config{Nodes: []string{"redis://127.0.0.1:x"}}, []string{"Nodes[0]"}},
		{"unknown parameter", redlatch.Config{Nodes: []string{url + "?timeout=1s"}}, []string{"Nodes[0]", "parameter", "db"}},
		{"node twice", redlatch.Config{Nodes: []string{url, url}}, []string{"Nodes[0]", "Nodes[1]", "vote twice", "once"}},
		{"node twice, one more between", redlatch.Config{Nodes: []string{url, second.URL(), url + "/"}}, []string{"Nodes[0]", "Nodes[2]", "vote twice"}},
		{"node twice by name", redlatch.Config{Nodes: []string{url + "#a", second.URL() + "#a"}}, []string{"Nodes[0]", "Nodes[1]", "one name", "vote twice"}},
		{"node twice with other credentials", redlatch.Config{Nodes: []string{url, "redis://alice:hunter2@" + host + ":" + port}}, []string{"Nodes[0]", "Nodes[1]"}},
		{"two databases of one node", redlatch.Config{Nodes: []string{url + "/0", url + "/1"}}, []string{"Nodes[0]", "Nodes[1]", "vote twice"}},
		{"negative TTL", redlatch.Config{Nodes: []string{url}, TTL: -time.Second}, []string{"Config.TTL", "-1s", "at least 1ms"}},
		{"TTL below the grain", redlatch.Config{Nodes: []string{url}, TTL: 999 * time.Microsecond}, []string{"Config.TTL", "999µs", "at least 1ms"}},
		{"TTL below its drift", redlatch.Config{Nodes: []string{url}, TTL: 2 * time.Millisecond}, []string{"Config.TTL", "2ms", "drift"}},
		{"TTL beyond MaxTTL", redlatch.Config{Nodes: []string{url}, TTL: time.Minute, MaxTTL: 30 * time.Second}, []string{"Config.TTL", "1m0s", "MaxTTL", "30s", "raise"}},
		{"MaxTTL below its drift", redlatch.Config{Nodes: []string{url}, MaxTTL: 2 * time.Millisecond}, []string{"Config.MaxTTL is 2ms", "drift"}},
		{"negative MaxTTL", redlatch.Config{Nodes: []string{url}, MaxTTL: -1}, []string{"Config.MaxTTL"}},
		{"negative MaxHold", redlatch.Config{Nodes: []string{url}, MaxHold: -time.Hour}, []string{"Config.MaxHold"}},
		{"NodeTimeout below the grain", redlatch.Config{Nodes: []string{url}, NodeTimeout: time.Microsecond}, []string{"Config.NodeTimeout"}},
		{"NodeTimeout too long", redlatch.Config{Nodes: []string{url}, NodeTimeout: time.Minute}, []string{"Config.NodeTimeout", "1m0s", "at most"}},
		{"negative Replicas", redlatch.Config{Nodes: []string{url}, Replicas: redlatch.Replicas{Count: -1}}, []string{"Config.Replicas.Count", "-1"}},
		{"Replicas.Timeout too long", redlatch.Config{Nodes: []string{url}, Replicas: redlatch.Replicas{Count: 1, Timeout: time.Second}}, []string{"Config.Replicas.Timeout", "1s", "NodeTimeout", "50ms"}},
		{"the longest Replicas.Timeout", redlatch.Config{Nodes: []string{url}, Replicas: redlatch.Replicas{Count: 1, Timeout: math.MaxInt64}}, []string{"Config.Replicas.Timeout", "NodeTimeout", "50ms"}},
		{"template without name", redlatch.Config{Nodes: []string{url}, KeyTemplate: "lock:"}, []string{"Config.KeyTemplate", "{name}"}},
		{"template with the name twice", redlatch.Config{Nodes: []string{url}, KeyTemplate: "{name}{name}"}, []string{"Config.KeyTemplate", "once"}},
		{"template of the library's own keys", redlatch.Config{Nodes: []string{url}, KeyTemplate: "redlatch:{name}"}, []string{"Config.KeyTemplate", "redlatch:", "begin otherwise"}},
		{"long label", redlatch.Config{Nodes: []string{url}, Label: strings.Repeat("x", 65)}, []string{"Config.Label", "64"}},
		{"label that is no UTF-8", redlatch.Config{Nodes: []string{url}, Label: "a\xff"}, []string{"Config.Label", "printable"}},
		{"label with a line break", redlatch.Config{Nodes: []string{url}, Label: "a\nb"}, []string{"Config.Label", "printable"}},
		{"deployment", redlatch.Config{Nodes: []string{url}, Deployment: "a b"}, []string{"Config.Deployment", "letters"}},
		{"TLS for a URL without it", redlatch.Config{Nodes: []string{url}, TLS: new(tls.Config)}, []string{"Config.Nodes[0]", "TLS is given", "rediss://"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			client, err := redlatch.Open(c.config)
			if client != nil {
				client.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, redlatch.ErrInvalid) {
				t.Errorf("not ErrInvalid: %v", err)
			}
			for _, w := range c.words {
				if !strings.Contains(fmt.Sprint(err), w) {
					t.Errorf("no word of %q: %v", w, err)
				}
			}
			if strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("the password is told: %v", err)
			}
		})
	}
	if s := proxy.Stats(); s.Accepted > 0 {
		t.Errorf("%d connections were made for configurations that cannot work", s.Accepted)
	}
}

// Open reports several mistakes at once.
func TestInvalidConfigTellsAll(t *testing.T) {
	t.Parallel()
	_, err := redlatch.Open(redlatch.Config{TTL: time.Hour, MaxTTL: time.Minute, Label: "\x00", Deployment: "/"})
	for _, w := range []string{"Nodes", "TTL", "Label", "Deployment"} {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("no word of %s: %v", w, err)
		}
	}
}
