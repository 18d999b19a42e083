package etcd_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What cannot work is refused before anything is sent, with the setting in the error.
func TestInvalid(t *testing.T) {
	t.Parallel()
	good := etcd.Cluster{Endpoints: []string{"127.0.0.1:1"}}
	for name, tt := range map[string]struct {
		config redlatch.Config
		change func(*etcd.Cluster)
		want   string
	}{
		"no endpoint":   {change: func(c *etcd.Cluster) { c.Endpoints = nil }, want: "etcd1:2379"},
		"a URL":         {change: func(c *etcd.Cluster) { c.Endpoints = []string{"http://u:secret@etcd1:2379"} }, want: "Endpoints[0]"},
		"another's URL": {change: func(c *etcd.Cluster) { c.Endpoints = []string{"a:1", "redis://:secret@b"} }, want: "Endpoints[1]"},
		"a list":        {change: func(c *etcd.Cluster) { c.Endpoints = []string{"etcd1:2379,etcd2:2379"} }, want: "Endpoints[0]"},
		"no port":       {change: func(c *etcd.Cluster) { c.Endpoints = []string{"etcd1:secret"} }, want: "Endpoints[0]"},
		"a last slash":  {change: func(c *etcd.Cluster) { c.Prefix = "/redlatch/" }, want: "Cluster.Prefix"},
		"not printable": {change: func(c *etcd.Cluster) { c.Prefix = "a\nb" }, want: "Cluster.Prefix"},
		"no password":   {change: func(c *etcd.Cluster) { c.User = "me" }, want: "Cluster.Password"},
		"nodes":         {config: redlatch.Config{Nodes: []string{"redis://:secret@a"}}, want: "Config.Nodes"},
		"node timeout":  {config: redlatch.Config{NodeTimeout: time.Second}, want: "Config.NodeTimeout"},
		"replicas":      {config: redlatch.Config{Replicas: redlatch.Replicas{Count: 1}}, want: "Config.Replicas"},
		"deployment":    {config: redlatch.Config{Deployment: "a"}, want: "Config.Deployment"},
		"no quarantine": {config: redlatch.Config{NoQuarantine: true}, want: "Config.NoQuarantine"},
		"durable":       {config: redlatch.Config{Durable: true}, want: "Config.Durable"},
		"strict":        {config: redlatch.Config{Strict: true}, want: "Config.Strict"},
		"TTL":           {config: redlatch.Config{TTL: time.Microsecond}, want: "TTL is 1µs"},
	} {
		c := good
		if tt.change != nil {
			tt.change(&c)
		}
		client, err := etcd.OpenWith(tt.config, c)
		if client != nil || !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(fmt.Sprint(err), tt.want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v, want ErrInvalid with %q", name, err, tt.want)
		}
	}
	if _, err := etcd.Open(enginetest.Config, nil); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	if _, err := etcd.Open(redlatch.Config{TLS: new(tls.Config)}, new(clientv3.Client)); !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Config.TLS") {
		t.Errorf("TLS beside a client: %v", err)
	}
	for _, endpoint := range []string{"http://me:secret@127.0.0.1:1", "me:secret@127.0.0.1:1"} {
		theirs := dial(t, "127.0.0.1:1", endpoint)
		defer theirs.Close()
		if client, err := etcd.Open(enginetest.Config, theirs); client != nil || !errors.Is(err, redlatch.ErrInvalid) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("a client whose endpoint has a password: %v", err)
		}
	}
}

// Servers that cannot be reached are no error of Open; a try says so, and Close does not wait for them.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	client, err := etcd.OpenWith(redlatch.Config{}, etcd.Cluster{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Unreachable(t, client)
}

// What others keep under the prefix is an error, and is left alone.
func TestPrefixOfOthers(t *testing.T) {
	t.Parallel()
	c := common(t)
	client := dial(t, c.Addrs()...)
	t.Cleanup(func() { client.Close() })
	for name, key := range map[string]string{"the key": "", "a key under it": "/x"} {
		prefix := enginetest.Root(t) + name[:1]
		if _, err := client.Put(t.Context(), prefix+key, "theirs"); err != nil {
			t.Fatal(err)
		}
		_, err := etcd.OpenWith(enginetest.Config, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix})
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), prefix) {
			t.Errorf("%s: %v", name, err)
		}
		if r, err := client.Get(t.Context(), prefix, clientv3.WithPrefix()); err != nil || r.Count != 1 {
			t.Errorf("%s: it has %v, %v", name, r.Kvs, err)
		}
	}
}

// The error of a client whose endpoints hang, are of another kind, or speak TLS where it does not or the reverse, says what to
// look at, with a user too, and so does Examine.
func TestEndpointsOfAnotherKind(t *testing.T) {
	t.Parallel()
	redis, web := redistest.New(t).Addr(), httptest.NewUnstartedServer(nil)
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	t.Cleanup(web.Close)
	secure := enginetest.Config
	secure.TLS = new(tls.Config)
	hung, err := net.Listen("tcp", "127.0.0.1:0") // its connections are made by the kernel
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hung.Close() })
	for name, tt := range map[string]struct {
		addr   string
		config redlatch.Config
	}{
		"a hung server":           {hung.Addr().String(), enginetest.Config},
		"a hung server, by TLS":   {hung.Addr().String(), secure},
		"Redis":                   {redis, enginetest.Config},
		"Redis, by TLS":           {redis, secure},
		"TLS, without it":         {web.Listener.Addr().String(), enginetest.Config},
		"etcd without TLS, by it": {common(t).Addrs()[0], secure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := etcd.Cluster{Endpoints: []string{tt.addr}}
			says := func(what string, err error) {
				t.Helper()
				text := fmt.Sprint(err)
				if !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(text, "has not answered as a member of etcd does") || !strings.Contains(text, "hangs") || !strings.Contains(text, "Cluster.Endpoints") || !strings.Contains(text, "redlatch.Config.TLS") {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := open(t, tt.config, cluster).TryLock(t.Context(), "name")
			says("a try", err)
			report, err := etcd.Examine(t.Context(), tt.config, cluster)
			if err != nil || !enginetest.Says(report, false, tt.addr, "has not answered as a member of etcd does") {
				t.Errorf("Examine: %+v, %v", report, err)
			}
			cluster.User, cluster.Password = "me", "secret"
			_, err = etcd.OpenWith(tt.config, cluster)
			says("with a user", err)
		})
	}
}

// While no member is up, a client goes on trying about once a second, however long that is: it would not notice for
// minutes that they are back.
func TestConnectsAgain(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tried atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tried.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close() })
	open(t, enginetest.Patient, etcd.Cluster{Endpoints: []string{listener.Addr().String()}})
	enginetest.Await(t, "it tries again and again", func() bool { return tried.Load() >= 9 })
}

// Endpoints of two clusters are refused: a lock could have a holder in each.
func TestEndpointsOfTwoClusters(t *testing.T) {
	t.Parallel()
	both := []string{common(t).Addrs()[0], own(t).Addrs()[0]}
	refused := func(err error) bool {
		return errors.Is(err, redlatch.ErrInvalid) && strings.Contains(err.Error(), "Cluster.Endpoints: two clusters answer")
	}
	client, err := etcd.OpenWith(enginetest.Config, etcd.Cluster{Endpoints: both, Prefix: enginetest.Root(t)})
	if refused(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	enginetest.Await(t, "it is refused", func() bool {
		held, err := client.TryLock(t.Context(), "name")
		if err == nil {
			held.Unlock(t.Context()) // only one of them has answered yet
		}
		return refused(err)
	})
}

// Somebody deletes the prefix: nothing is granted any more, as tokens might begin anew.
func TestPrefixIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWire(t, common(t), enginetest.Root(t))
	client := w.open(t)
	enginetest.Unlock(t, enginetest.Lock(t, client, "name"))
	if _, err := w.KV.Delete(t.Context(), "/redlatch", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "/redlatch") {
		t.Error(err)
	}
}

// The program's client stays open.
func TestClientIsNotClosed(t *testing.T) {
	t.Parallel()
	w := newWire(t, common(t), enginetest.Root(t))
	client := w.open(t)
	enginetest.Unlock(t, enginetest.Lock(t, client, "name"))
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	r, err := w.KV.Get(t.Context(), "/redlatch", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) != 1 || string(r.Kvs[0].Key) != "/redlatch" {
		t.Errorf("it has left %v", r.Kvs)
	}
}

func TestNoMeaning(t *testing.T) { engine.NoMeaning(t) }
func TestTLS(t *testing.T)       { engine.TLS(t) }

func TestOpenURL(t *testing.T) {
	t.Parallel()
	c, prefix := common(t), enginetest.Root(t)
	client, err := etcd.OpenURL(enginetest.Patient, "etcd://"+strings.Join(c.Addrs(), ",")+prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	held := enginetest.Lock(t, client, "name")
	other := open(t, enginetest.Patient, etcd.Cluster{Endpoints: c.Addrs(), Prefix: prefix})
	if _, err := other.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("elsewhere: %v", err)
	}
	enginetest.Unlock(t, held)
	secure := enginetest.Config
	secure.TLS = new(tls.Config)
	for url, c := range map[string]redlatch.Config{"zk://127.0.0.1": enginetest.Config, "etcd://127.0.0.1/a/": enginetest.Config, "etcd://127.0.0.1": secure} {
		if _, err := etcd.OpenURL(c, url); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A program that closes its own etcd client first is told so: by calls that would wait, too.
func TestClientClosedFirst(t *testing.T) {
	t.Parallel()
	theirs := dial(t, common(t).Addrs()...)
	client, err := etcd.Open(enginetest.Patient, theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lock := enginetest.Lock(t, client, t.Name())
	theirs.Close()
	_, waited := client.Lock(t.Context(), "another")
	for _, err := range []error{waited, lock.Extend(t.Context(), enginetest.Patient.TTL)} {
		if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "closed its etcd client") {
			t.Errorf("%v, want ErrRefused and the reason", err)
		}
	}
}
