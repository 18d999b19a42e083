package goredis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/driver/drivertest"
)

// readTimeout is how long Close waits for a server that hangs: longer than a busy machine stands still for, mostly.
const readTimeout = 10 * time.Second

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]redis.Options{
		"as it comes":             {},
		"RESP2":                   {Protocol: 2},
		"with retries":            {MaxRetries: 10},
		"with deadlines from ctx": {ContextTimeoutEnabled: true, MaxRetries: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, drivertest.Subject{Stage: drivertest.Single, Connect: func(t *testing.T, s drivertest.Stage) driver.Conn {
				options := options
				options.Addr, options.ReadTimeout = s.Addresses[0], readTimeout
				client := redis.NewClient(&options)
				return owned(t, newListenConn(client), client)
			}})
		})
	}
}

// A command is with the client until it is answered, also where Process only queues it.
func TestSuiteAutoPipeliner(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Single, Connect: func(t *testing.T, s drivertest.Stage) driver.Conn {
		client := redis.NewClient(&redis.Options{Addr: s.Addresses[0], ReadTimeout: readTimeout})
		deferred, err := client.AsyncAutoPipeline()
		if err != nil {
			t.Fatal(err)
		}
		return owned(t, newListenConn(deferred), client)
	}})
}

func TestSuiteSentinels(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Sentinels, Connect: func(t *testing.T, s drivertest.Stage) driver.Conn {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Master, SentinelAddrs: s.Addresses, ReadTimeout: readTimeout})
		return owned(t, newListenConn(client), client)
	}})
}

func TestSuiteCluster(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Cluster, Connect: func(t *testing.T, s drivertest.Stage) driver.Conn {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addresses, ReadTimeout: readTimeout})
		return owned(t, newConn(client), client)
	}})
}

// owned closes both when the test is done, in order.
func owned(t *testing.T, conn driver.Conn, client interface{ Close() error }) driver.Conn {
	t.Helper()
	t.Cleanup(func() {
		conn.Close()
		client.Close()
	})
	return conn
}
