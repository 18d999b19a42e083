//go:build !race

package zookeeper_test

import "testing"

func reconnects(*testing.T) {}
