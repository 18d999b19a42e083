// Package locking has the tests of locks that are acquired, held, extended and released, on
// real servers.
package locking
