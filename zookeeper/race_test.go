//go:build race

package zookeeper_test

import "testing"

// reconnects skips a test in which clients connect again: go-zookeeper 1.0.4 then sends its watches and
// reads the first reply at once, and both use the number of the last change that it knows of, without
// a lock (Conn.lastZxid). Without the race detector the test runs.
func reconnects(t *testing.T) { t.Skip("go-zookeeper races with itself when it connects again") }
