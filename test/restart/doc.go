// Package restart has the tests of what keeps a node out that may have forgotten locks, and of
// what the clients of a deployment agree on, on real servers.
package restart
