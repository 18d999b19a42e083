// Package waiting has the tests of callers and processes that wait for a lock, and of the order
// in which they get it, on real servers.
package waiting
