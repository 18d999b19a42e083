package redisconn_test

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/driver/drivertest"
	"github.com/redlatch/redlatch/internal/redisconn"
)

func connect(t *testing.T, s drivertest.Stage) driver.Conn {
	t.Helper()
	c, err := redisconn.New(redisconn.Options{
		Network: "tcp", Address: s.Addresses[0], More: s.Addresses[1:], Master: s.Master, ConnectTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestSuite(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Single, Connect: connect})
}

func TestSuiteSentinels(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Sentinels, Connect: connect})
}

func TestSuiteCluster(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Cluster, Connect: func(t *testing.T, s drivertest.Stage) driver.Conn {
		c := redisconn.NewCluster(redisconn.Options{
			Network: "tcp", Address: s.Addresses[0], More: s.Addresses[1:], Cluster: true, ConnectTimeout: 5 * time.Second,
		})
		t.Cleanup(c.Close)
		return c
	}})
}
