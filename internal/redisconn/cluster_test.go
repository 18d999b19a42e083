package redisconn

import (
	"errors"
	"strings"
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
