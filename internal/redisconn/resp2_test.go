package redisconn

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// eachWithoutHello runs f for servers that know no HELLO, and so no RESP3.
func eachWithoutHello(t *testing.T, f func(t *testing.T, server *redistest.Server)) {
	t.Helper()
	eachFlavor(t, func(t *testing.T, binary string) {
		f(t, redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--rename-command", "HELLO", ""}}))
	})
}

// listeners is how many connections for messages a server has.
func listeners(t *testing.T, server *redistest.Server) int {
	t.Helper()
	return strings.Count(at(t, server, "CLIENT", "LIST", "TYPE", "pubsub").(string), " laddr=")
}

// subscribed returns a subscription that stands, by the channel on which its end will be told.
func subscribed(t *testing.T, subscribe func(ctx context.Context, channel string, ready func(), heard func(message string)) error) <-chan error {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		ready, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- subscribe(t.Context(), "x", func() { close(ready) }, func(string) {}) }()
		select {
		case <-ready:
			return ended
		case err := <-ended:
			if time.Now().After(deadline) {
				t.Fatalf("no subscription: %v", err)
			}
		}
	}
}

// The connection for messages and that for commands stand and fall together: there is a subscription
// again whichever breaks, and none is left behind.
func TestSubscriptionBreaksInRESP2(t *testing.T) {
	t.Parallel()
	eachWithoutHello(t, func(t *testing.T, server *redistest.Server) {
		c := connect(t, server.URL())
		await := func(n int, when string) {
			t.Helper()
			for deadline := time.Now().Add(patience); listeners(t, server) != n; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d connections for messages, want %d", when, listeners(t, server), n)
				}
			}
		}
		for range 3 {
			for _, which := range []string{"messages", "commands"} {
				ended := subscribed(t, c.Subscribe)
				if which == "messages" {
					at(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
				} else {
					at(t, server, "CLIENT", "KILL", "ID", strconv.FormatInt(must(t, c, "CLIENT", "ID").Int, 10))
				}
				select {
				case <-ended:
				case <-time.After(patience):
					t.Fatalf("without the connection for %s the subscription goes on", which)
				}
				await(0, "without that for "+which)
			}
		}
		subscribed(t, c.Subscribe)
		await(1, "at last")
		c.Close()
		await(0, "closed")
	})
}

// So do those to a Cluster's master.
func TestShardSubscriptionBreaksInRESP2(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewClusterWithReplicas(t, 3, 0, redistest.Options{Args: []string{"--rename-command", "HELLO", ""}})
	c := NewCluster(Options{Network: "tcp", Address: cluster.Masters[0].Addr(), Cluster: true, ConnectTimeout: 20 * time.Second})
	t.Cleanup(c.Close)
	master, err := cluster.Owner(int(hashslot.Of("x")))
	if err != nil {
		t.Fatal(err)
	}
	for _, which := range []string{"pubsub", "normal", "pubsub"} {
		ended := subscribed(t, c.SubscribeShard)
		at(t, master, "CLIENT", "KILL", "TYPE", which)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatalf("after the end of what is %s the subscription goes on", which)
		}
	}
	subscribed(t, c.SubscribeShard)
	if n := listeners(t, master); n != 1 {
		t.Errorf("%d connections for messages", n)
	}
}

// In RESP2 a server confirms that it watches a key, and then tells of no change.
func TestNothingIsWatchedInRESP2(t *testing.T) {
	t.Parallel()
	eachWithoutHello(t, func(t *testing.T, server *redistest.Server) {
		c := connect(t, server.URL())
		changed := make(chan string, 1)
		c.OnChange(func(key string) { changed <- key })
		sha := at(t, server, "SCRIPT", "LOAD", "return redis.call('GET', KEYS[1])").(string)
		if _, watched, err := c.DoWatching(within(t, patience), "GET", "k"); watched || err != nil {
			t.Errorf("a command: watched is %t, %v", watched, err)
		}
		if _, watched, err := c.EvalSHAWatching(within(t, patience), sha, []string{"k"}, nil); watched || err != nil {
			t.Errorf("a script: watched is %t, %v", watched, err)
		}
		at(t, server, "SET", "k", "v")
		must(t, c, "PING") // a change would have been told before the reply
		if len(changed) > 0 {
			t.Error("the server has told of the change after all")
		}
	})
}
