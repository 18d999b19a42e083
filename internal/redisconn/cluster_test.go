//go:build unix

package redisconn

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A try to reach a Cluster that fails leaves no connection to any of its servers.
func TestClusterThatRefusesLeavesNoConnection(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary, Users: []string{"u on >p ~* &* +@all -cluster"}})
		o := Options{Network: "tcp", Cluster: true, Username: "u", Password: "p", ConnectTimeout: 2 * replyTimeout}
		for _, s := range servers {
			o.More = append(o.More, s.Addr())
		}
		o.Address, o.More = o.More[0], o.More[1:]
		c := NewCluster(o)
		t.Cleanup(c.Close)
		for range 40 {
			if _, err := c.Do(within(t, patience), "GET", "k"); err == nil || !hasReply(err) {
				t.Fatalf("%v, want a refusal", err)
			}
			<-time.After(retryPause)
		}
		for _, s := range servers {
			var list string
			for deadline := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
				reply, err := s.Do("CLIENT", "LIST")
				if err != nil {
					t.Fatal(err)
				}
				list = reply.(string)
				if !strings.Contains(list, "user=u ") {
					break
				}
				if time.Now().After(deadline) {
					t.Errorf("%s has %d connections", s.Addr(), strings.Count(list, "user=u "))
					break
				}
			}
		}
	})
}

// Servers that are to be announced by a host name, and have none, name no place for their slots.
func TestClusterWithoutHostNames(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary, Args: []string{"--cluster-preferred-endpoint-type", "hostname"}})
		c := NewCluster(Options{Network: "tcp", Cluster: true, Address: servers[0].Addr(), ConnectTimeout: 2 * replyTimeout})
		t.Cleanup(c.Close)
		_, err := c.Do(within(t, patience), "GET", "k")
		if !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "cluster-announce-hostname") {
			t.Errorf("%v, want what to set", err)
		}
	})
}

// Close does not wait for a connection to a server that does not even take it.
func TestClusterCloseWhileDialling(t *testing.T) {
	t.Parallel()
	full, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	raw, err := full.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	for { // until it takes no further one
		conn, err := net.DialTimeout("tcp", full.Addr().String(), time.Second)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	promptly(t, "Close", func() {
		c := NewCluster(Options{Network: "tcp", Cluster: true, Address: full.Addr().String(), ConnectTimeout: 2 * replyTimeout})
		if _, err := c.Do(within(t, 100*time.Millisecond), "GET", "k"); err == nil {
			t.Error("it was answered")
		}
		c.Cut()
		c.Close()
	})
}
