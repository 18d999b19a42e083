package enginetest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/oneshot"
)

// Unreachable tests a client, just opened, of a server at 127.0.0.1:1, where there is none: a try says so, and
// why, and Close does not wait for it.
func Unreachable(t *testing.T, client *redlatch.Client) {
	t.Helper()
	if _, err := client.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), "dial tcp 127.0.0.1:1: ") || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TryLock: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := client.Lock(ctx, "name"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock: %v", err)
	}
	if s := client.Stats(); s.Unreachable != 1 || s.Contacted != 0 {
		t.Errorf("Stats: %+v", s)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// NoMeaning tests that what has no meaning with an ensemble is ErrInvalid.
func (e Engine) NoMeaning(t *testing.T) {
	t.Parallel()
	client := e.clients(t, 1, Config)[0]
	held := Lock(t, client, "name")
	_, take := oneshot.New(client).Take(t.Context(), "name", "id", TTL)
	_, several := client.LockAll(t.Context(), []string{"one", "two"})
	_, reader := client.RLock(t.Context(), "one")
	_, permit := client.Acquire(t.Context(), "one", 2)
	var observed error
	for _, observed = range client.ObservePermits(t.Context(), "one") {
	}
	for name, err := range map[string]error{
		"Take": take, "LockAll": several, "RLock": reader, "Acquire": permit, "ObservePermits": observed, "Admit": client.Admit(t.Context(), e.Common(t)[0]),
	} {
		if !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Clients with different MaxTTLs may share locks, and there is no deployment to set.
	_, long := client.TryLock(t.Context(), "one", redlatch.WithTTL(2*TTL))
	_, kept := client.TryLock(t.Context(), "one", redlatch.WithMinHold(2*TTL))
	for _, err := range []error{long, kept} {
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "raise MaxTTL (on Redis, ") {
			t.Error(err)
		}
	}
	if err := held.Err(); err != nil {
		t.Error("the lock: ", err)
	}
	Unlock(t, held)
}

// TLS tests that the way to the servers is TLS throughout, and that it is told their names.
func (e Engine) TLS(t *testing.T) {
	t.Parallel()
	servers := e.Common(t)
	web := httptest.NewUnstartedServer(nil) // for its certificate
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", web.TLS)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(conn, servers[0])
		}
	}()
	secure := Config
	secure.TLS = web.Client().Transport.(*http.Transport).TLSClientConfig
	client := e.open(t, secure, []string{listener.Addr().String()}, Root(t))
	Unlock(t, Lock(t, client, "name"))
}

// relay joins two connections until one ends.
func relay(conn net.Conn, target string) {
	defer conn.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		io.Copy(server, conn)
		server.Close()
	}()
	io.Copy(conn, server)
}
