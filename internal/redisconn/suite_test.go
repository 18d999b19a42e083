package redisconn_test

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/driver/drivertest"
	"github.com/redlatch/redlatch/internal/redisconn"
)

func connect(t *testing.T, s drivertest.Stage) *redisconn.Conn {
	t.Helper()
	c, err := redisconn.New(redisconn.Options{
		Network: "tcp", Address: s.Addresses[0], More: s.Addresses[1:], Master: s.Master, ConnectTimeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestSuite(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Single, Connect: pipeline})
}

func pipeline(t *testing.T, s drivertest.Stage) driver.Conn { return connect(t, s) }

// What holds for the pipeline holds for the pipeline and the direct connection together.
func TestSuiteDirect(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Single, Ends: true, Connect: func(t *testing.T, s drivertest.Stage) driver.Conn {
		return redisconn.NewHasty(connect(t, s))
	}})
}

func TestSuiteSentinels(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Sentinels, Connect: pipeline})
}

func TestSuiteCluster(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Subject{Stage: drivertest.Cluster, Connect: func(t *testing.T, s drivertest.Stage) driver.Conn {
		c := redisconn.NewCluster(redisconn.Options{
			Network: "tcp", Address: s.Addresses[0], More: s.Addresses[1:], Cluster: true, ConnectTimeout: 20 * time.Second,
		})
		t.Cleanup(c.Close)
		return c
	}})
}
