// Package topology has the tests of masters with replicas, of those that Sentinels watch, and
// of a Redis Cluster: on real servers.
package topology
