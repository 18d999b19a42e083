package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server that will not have this client says why, in its own words, and no
// number of tries cures it.
func TestUnfit(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		secret := redistest.New(t, redistest.Options{Binary: binary, Password: "right"})
		secure := redistest.New(t, redistest.Options{Binary: binary, TLS: true})
		mutual := redistest.New(t, redistest.Options{Binary: binary, TLS: true, TLSClientAuth: true})
		plain := redistest.New(t, redistest.Options{Binary: binary})

		withoutCertificate := mutual.TLSConfig()
		withoutCertificate.Certificates = nil
		withoutCertificate.GetClientCertificate = nil
		anotherName := secure.TLSConfig()
		anotherName.ServerName = "another.example"

		cases := []struct {
			name, url string
			tls       *tls.Config
			words     string
		}{
			{"wrong password", secret.URLAs("", "wrong"), nil, "WRONGPASS"},
			{"unknown user", secret.URLAs("nobody", "right"), nil, "WRONGPASS"},
			{"no password", plainURL(secret), nil, "NOAUTH"},
			{"no such database", plain.URL() + "/99999", nil, "DB index"},
			{"authority not known", secure.URL(), nil, "certificate signed by unknown authority"},
			{"certificate for another name", secure.URL(), anotherName, "another.example"},
			{"no client certificate", mutual.URL(), withoutCertificate, "certificate"},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				o, _, err := Parse(c.url)
				if err != nil {
					t.Fatal(err)
				}
				o.Secure(c.tls)
				conn := open(t, o)
				for range 2 {
					_, err = conn.Do(within(t, patience), "PING")
					if !Unfit(err) || !strings.Contains(err.Error(), c.words) {
						t.Errorf("unfit is %t, want the words %q: %v", Unfit(err), c.words, err)
					}
				}
			})
		}
	})
}

// What does not speak TLS is said to be that, and not only to be late.
func TestServerWithoutTLS(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	const limit = 200 * time.Millisecond
	c, err := New(Options{Network: "tcp", Address: silent.Addr().String(), TLS: new(tls.Config), ConnectTimeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for ctx := within(t, patience); !errors.Is(err, errNoTLS); { // on a busy machine the caller's time may be over first
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		_, err = c.Do(within(t, limit), "PING")
	}
	if Unfit(err) {
		t.Error("it may be a server that hangs")
	}
}

// Why a Cluster was not connected to is said to the next caller, too, without another try.
func TestClusterWithoutTLS(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var tries atomic.Int32
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			defer conn.Close()
		}
	}()
	c := NewCluster(Options{Network: "tcp", Address: silent.Addr().String(), Cluster: true, TLS: new(tls.Config), ConnectTimeout: 200 * time.Millisecond})
	defer c.Close()
	for ctx := within(t, patience); ; { // on a busy machine the second caller may be late
		_, first := c.Do(ctx, "PING")
		before := tries.Load()
		_, second := c.Do(ctx, "PING")
		if errors.Is(first, errNoTLS) && errors.Is(second, errNoTLS) && tries.Load() == before {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%v; %v", first, second)
		}
	}
}

// plainURL is the server's URL without its password.
func plainURL(s *redistest.Server) string { return "redis://" + s.Addr() }

// A password that is right, and a certificate, work.
func TestFit(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		mutual := redistest.New(t, redistest.Options{Binary: binary, TLS: true, TLSClientAuth: true, Password: "right",
			Users: []string{"alice on >secret ~* +@all"}})
		for _, url := range []string{mutual.URL(), mutual.URLAs("alice", "secret")} {
			o, _, err := Parse(url)
			if err != nil {
				t.Fatal(err)
			}
			o.Secure(mutual.TLSConfig())
			must(t, open(t, o), "PING")
		}
	})
}

// expired is a ctx that is said to have expired when it is canceled.
type expired struct{ context.Context }

func (c expired) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// A server that would like a certificate, and can do without, is not said to miss one when it is
// late, nor is a command said to be not sent that was.
func TestCertificateIsOptional(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, TLS: true, TLSClientAuth: true, Args: []string{"--tls-auth-clients", "optional"}})
		o, _, err := Parse(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		o.Secure(server.TLSConfig())
		o.TLS.Certificates, o.TLS.GetClientCertificate = nil, nil

		ctx, cancel := context.WithCancel(t.Context())
		conn, first := open(t, o), make(chan error, 1)
		go func() {
			_, err := conn.Do(expired{ctx}, "BLPOP", "gate", "0")
			first <- err
		}()
		for info := map[string]string{}; info["blocked_clients"] != "1"; {
			if info, err = server.Info("clients"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNotSent) || Unfit(err) {
			t.Errorf("the first command: unfit is %t: %v", Unfit(err), err)
		}

		late := open(t, o)
		at(t, server, "CLIENT", "PAUSE", "120000", "ALL")
		if _, err := late.Do(within(t, inTime), "PING"); err == nil || Unfit(err) {
			t.Errorf("a connection that was not made in time: %v", err)
		}
	})
}

// The two ends speak different protocols. Neither may panic, hang or take it
// for an answer.
func TestWrongProtocol(t *testing.T) {
	t.Parallel()
	secure := redistest.New(t, redistest.Options{TLS: true})
	plain := redistest.New(t)
	for name, url := range map[string]string{
		"plain client, TLS server": "redis://" + secure.Addr(),
		"TLS client, plain server": "rediss://" + plain.Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _, err := Parse(url)
			if err != nil {
				t.Fatal(err)
			}
			o.ConnectTimeout = replyTimeout / 2 // for the one of them that waits for the other
			c, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			_, err = c.Do(within(t, patience), "PING")
			if err == nil {
				t.Error("it answered")
			}
			t.Logf("unfit %t, not sent %t: %v", Unfit(err), errors.Is(err, driver.ErrNotSent), err)
		})
	}
}

// A server that has no connection to spare says so before it is asked anything, and is
// the same again when there is one.
func TestMaxClients(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for name, options := range map[string]redistest.Options{
			"plain":  {Binary: binary, Password: "right"},
			"second": {Binary: binary},
			"TLS":    {Binary: binary, TLS: true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := redistest.New(t, options)
				direct, err := server.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer direct.Close()
				set := func(max string) {
					if _, err := direct.Do("CONFIG", "SET", "maxclients", max); err != nil {
						t.Fatal(err)
					}
				}
				o, _, err := Parse(server.URL())
				if err != nil {
					t.Fatal(err)
				}
				o.Secure(server.TLSConfig())
				conn := open(t, o)
				said := func() bool { _, ok := errors.AsType[*driver.ServerError](err); return ok }
				switch name {
				case "second":
					must(t, conn, "PING")
					set("2")
					if _, _, err = conn.IfEqual(within(t, patience/20), "k", "v", "DEL", "k"); !errors.Is(err, driver.ErrNotSent) {
						t.Errorf("a transaction without a connection: %v", err)
					}
				case "plain": // the end can overtake the words
					set("1")
					for ctx := within(t, patience); !said() && ctx.Err() == nil; {
						_, err = conn.Do(ctx, "PING")
					}
				case "TLS": // there are no words
					set("1")
					_, err = conn.Do(within(t, patience), "PING")
				}
				if Unfit(err) {
					t.Errorf("it is for somebody to mend: %v", err)
				}
				if refusal, ok := errors.AsType[*driver.ServerError](err); ok && !refusal.Passing() || !ok && name == "plain" {
					t.Errorf("it does not pass: %v", err)
				}
				set("100")
				must(t, conn, "PING")
			})
		}
	})
}

// Nor is one unfit that has its data to load, or its master to find.
func TestPassingAtConnect(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"LOADING Redis is loading", "BUSY Redis is busy", "MASTERDOWN Link with MASTER is down", "ERR max number of clients reached"} {
		conn := connect(t, redistest.NewFake(t, "", func(redistest.Command) string { return "-" + text + "\r\n" }).URL())
		_, err := conn.Do(within(t, patience), "PING")
		refusal, said := errors.AsType[*driver.ServerError](err)
		if Unfit(err) || !said || !refusal.Passing() {
			t.Errorf("%q: unfit %t, %v", text, Unfit(err), err)
		}
	}
}

// What is no Redis server, or may want TLS, is said to be that. A server that answered once is not.
func TestNoRedisServer(t *testing.T) {
	t.Parallel()
	another := redistest.NewFake(t, "", func(redistest.Command) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" })
	secure := redistest.New(t, redistest.Options{TLS: true})
	for url, want := range map[string]error{another.URL(): errNoRedis, plainURL(secure): errNoWord} {
		_, err := connect(t, url).Do(within(t, patience), "PING")
		if !errors.Is(err, want) || Unfit(err) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	cut := redistest.NewFake(t, "", func(c redistest.Command) string {
		if c.Name() == "HELLO" {
			return redistest.Helloed
		}
		return "HTTP/1.1 400 Bad Request\r\n\r\n"
	})
	if _, err := connect(t, cut.URL()).Do(within(t, patience), "PING"); err == nil || errors.Is(err, errNoRedis) || errors.Is(err, errNoWord) {
		t.Errorf("after an answer: %v", err)
	}
}
