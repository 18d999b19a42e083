package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"testing"
)

// login dials as a client would that is given the URL.
func login(t *testing.T, s *Server, raw string, config *tls.Config) (*Conn, error) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dialTLS(within(t), u.Host, config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	if u.User != nil {
		name := u.User.Username()
		if name == "" {
			name = "default"
		}
		password, _ := u.User.Password()
		if _, err := c.Do("AUTH", name, password); err != nil {
			return nil, err
		}
	}
	_, err = c.Do("PING")
	return c, err
}

func TestPasswordAndUsers(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Password = `pass "word" \ with 100%`
		o.Users = []string{"alice on >wonder ~lock:* +@all -flushall"}
		s := New(t, o)
		if _, err := login(t, s, "redis://"+s.Addr(), nil); err == nil {
			t.Fatal("the server takes commands without a password")
		}
		if _, err := login(t, s, s.URL(), nil); err != nil {
			t.Fatalf("with the password: %v", err)
		}
		alice, err := login(t, s, s.URLAs("alice", "wonder"), nil)
		if err != nil {
			t.Fatalf("as alice: %v", err)
		}
		ask(t, alice, "OK", "SET", "lock:a", "v")
		for _, forbidden := range [][]string{{"SET", "a", "v"}, {"FLUSHALL"}} {
			if _, err := alice.Do(forbidden...); err == nil || err.(ServerError).Code() != "NOPERM" {
				t.Fatalf("%v as alice: %v, want NOPERM", forbidden, err)
			}
		}
		want(t, "FLUSHALL by the test", do(t, s, "FLUSHALL"), "OK")
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "PING after a restart", do(t, s, "PING"), "PONG")
	})
}

// Our own commands keep their rights where the test takes all from everybody.
func TestDefaultUserForbidden(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Users = []string{"default on nopass ~* &* +@all -info -script"}
		s := New(t, o)
		c := dial(t, s.Addr())
		ask(t, c, "PONG", "PING")
		if _, err := c.Do("INFO"); err == nil || err.(ServerError).Code() != "NOPERM" {
			t.Fatalf("INFO as the default user: %v, want NOPERM", err)
		}
		if info, err := s.Info("server"); err != nil || info["process_id"] == "" {
			t.Fatalf("INFO by the test: %v, %v", info, err)
		}
	})
}

func TestTLS(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.TLS, o.Password = true, "s3cret"
		a := New(t, o)
		o.TLSClientAuth = true
		b := New(t, o)
		// One configuration fits all servers.
		for _, s := range []*Server{a, b} {
			if _, err := login(t, s, s.URL(), a.TLSConfig()); err != nil {
				t.Fatal(err)
			}
			want(t, "PING", do(t, s, "PING"), "PONG")
		}
		text, err := os.ReadFile(a.CAFile())
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			t.Fatalf("%s holds no certificate", a.CAFile())
		}
		if _, err := login(t, a, a.URL(), &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}); err != nil {
			t.Fatalf("with the authority's file: %v", err)
		}
		if _, err := login(t, a, a.URL(), &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}); err == nil {
			t.Fatal("the certificate is accepted without its authority")
		}
		if _, err := login(t, b, b.URL(), &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}); err == nil {
			t.Fatal("a server that asks for client certificates goes without")
		}
		if _, err := login(t, a, "redis://"+a.Addr(), nil); err == nil {
			t.Fatal("a server with TLS takes commands without")
		}
		// The proxy does not understand the bytes and passes them.
		p := NewProxy(t, a.Addr())
		u, err := url.Parse(a.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.Host = p.Addr()
		if _, err := login(t, a, u.String(), a.TLSConfig()); err != nil {
			t.Fatalf("through a proxy: %v", err)
		}
		if n := p.Commands(); len(n) != 0 {
			t.Fatalf("commands seen in TLS: %v", n)
		}
	})
}

func TestUnixSocket(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Unix = true
		s := New(t, o)
		ask(t, dial(t, s.Socket()), "PONG", "PING")
		s.Kill()
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		ask(t, dial(t, s.Socket()), "PONG", "PING")
	})
}
