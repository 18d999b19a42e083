package drivertest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Stage has the servers of one test.
type Stage struct {
	// Server has all keys of the test, behind Proxy.
	Server *redistest.Server
	Proxy  *redistest.Proxy
	// Addresses are where to connect: the server's, the Sentinels', or those of a Cluster's masters.
	// Master is the name that the Sentinels have for the server.
	Addresses []string
	Master    string

	tag string
}

// Key returns the name of a key that Server has.
func (s Stage) Key(name string) string {
	if s.tag == "" {
		return name
	}
	return "{" + s.tag + "}" + name
}

// Single returns a stage with one server.
func Single(t *testing.T, binary string) Stage {
	t.Helper()
	server := redistest.New(t, redistest.Options{Binary: binary})
	proxy := redistest.NewProxy(t, server.Addr())
	return Stage{Server: server, Proxy: proxy, Addresses: []string{proxy.Addr()}}
}

// Sentinels returns a stage with three Sentinels that watch one server, at the proxy's address.
func Sentinels(t *testing.T, binary string) Stage {
	t.Helper()
	s := Single(t, binary)
	s.Master, s.Addresses = "behind", nil
	_, port, err := net.SplitHostPort(s.Proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		sentinel := redistest.NewSentinel(t, "itself", s.Server, 2, redistest.Options{Args: []string{
			"--sentinel", "monitor", s.Master, "127.0.0.1", port, "2",
			// The master must stay where it is, whatever the network does.
			"--sentinel", "down-after-milliseconds", s.Master, "3600000",
		}})
		s.Addresses = append(s.Addresses, sentinel.Addr())
	}
	return s
}

// Cluster returns a stage with three masters, each of which is known by its proxy's address.
func Cluster(t *testing.T, binary string) Stage {
	t.Helper()
	servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
	s := Stage{Server: servers[1]}
	for i, proxy := range Announce(t, servers) {
		if i == 1 {
			s.Proxy = proxy
		}
		s.Addresses = append(s.Addresses, proxy.Addr())
	}
	for n := 0; s.tag == ""; n++ {
		if tag := strconv.Itoa(n); int(hashslot.Of(tag))*3/16384 == 1 {
			s.tag = tag
		}
	}
	return s
}

// Announce puts a proxy before each server of a Cluster, and makes the Cluster announce the
// proxies' addresses.
func Announce(t *testing.T, servers []*redistest.Server) []*redistest.Proxy {
	t.Helper()
	proxies := redistest.Proxies(t, servers)
	for i, server := range servers {
		_, port, err := net.SplitHostPort(proxies[i].Addr())
		if err != nil {
			t.Fatal(err)
		}
		for _, setting := range [][2]string{
			{"cluster-announce-bus-port", strconv.Itoa(server.Port() + 10000)},
			{"cluster-announce-ip", "127.0.0.1"},
			{"cluster-announce-port", port},
		} {
			if _, err := server.Do("CONFIG", "SET", setting[0], setting[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, server := range servers {
		for !announced(t, server, proxies) {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s does not know the proxies", server.Addr())
			}
		}
	}
	return proxies
}

func announced(t *testing.T, server *redistest.Server, proxies []*redistest.Proxy) bool {
	t.Helper()
	reply, err := server.Do("CLUSTER", "SLOTS")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, entry := range reply.([]any) {
		node := entry.([]any)[2].([]any)
		known[fmt.Sprintf("%v:%v", node[0], node[1])] = true
	}
	for _, proxy := range proxies {
		if !known[proxy.Addr()] {
			return false
		}
	}
	return true
}
